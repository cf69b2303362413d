"""What developers need: the contract's writer, the table of settings, the recorder of the demo's answers."""
