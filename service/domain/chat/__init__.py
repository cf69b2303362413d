"""A score beside a chat's own answer: what is drawn, whose text is judged, and who waits for it."""
