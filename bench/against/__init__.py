"""This tree against another commit: the same work on both, in turns."""
