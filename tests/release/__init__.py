"""What belongs to a release beside image, chart and package."""
