"""The page for browsers: its files for a gateway, and one HTML file with a recording in it."""
