"""Explanation of one decision: evidence, alternatives, what is missing, and its texts."""
