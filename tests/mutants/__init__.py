"""Small faults that tests must notice, to see that they do; see ``README.md``."""
