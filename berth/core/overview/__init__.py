"""Overview: the picture of a cell for the page, and its changes."""
