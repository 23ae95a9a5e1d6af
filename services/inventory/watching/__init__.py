"""What is watched or listed on the API server beyond what a plain reflection does."""
