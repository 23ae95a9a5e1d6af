"""What one tenant sends delays another by less than a stated bound: each entrance at its bounds and beyond."""
