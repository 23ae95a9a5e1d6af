"""Nodes of a cell as columns: facts, domains, classes of nodes, bitmaps. No products, no jobs."""
