"""A topology that the product does not have: nodes on numbered rails, and all pods of a gang on one rail."""
