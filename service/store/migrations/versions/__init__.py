"""One module per change, numbered."""
