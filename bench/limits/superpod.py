"""Limit of ``superpod``: count the usable nodes of each SuperPoD, sort, and list the nodes of the first ones."""

import time

import numpy as np


def times_ms(superpods: int, size: int, replicas: int, repeats: int) -> list[float]:
    """Milliseconds of each repeat."""
    rng = np.random.default_rng(1)
    pods = np.repeat(np.arange(superpods), size)
    fits = rng.integers(0, 2, superpods * size) == 1
    names = [f"node-{index:07d}" for index in range(superpods * size)]
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        rows = np.flatnonzero(fits)
        counts = np.bincount(pods[rows], minlength=superpods)
        order = np.argsort(-counts, kind="stable")
        place = np.empty(superpods, np.int64)
        place[order] = np.arange(superpods)
        first = rows[np.argsort(place[pods[rows]], kind="stable")[:replicas]]
        [names[row] for row in first.tolist()]
        out.append((time.perf_counter() - start) * 1000)
    return out
