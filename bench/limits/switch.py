"""Limit of ``switch``: count the usable places of every leaf, sort the leaves, and list the nodes of the first ones."""

import time

import numpy as np


def times_ms(leaves: int, places: int, replicas: int, repeats: int) -> list[float]:
    """Milliseconds of each repeat."""
    rng = np.random.default_rng(1)
    usable = rng.integers(0, 2, (leaves, places)) == 1
    names = np.array([f"node-{index:06d}" for index in range(leaves * places)], object)
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        order = np.argsort(-usable.sum(axis=1), kind="stable")
        leaf, place = np.nonzero(usable[order])
        names[(order[leaf] * places + place)[:replicas]].tolist()
        out.append((time.perf_counter() - start) * 1000)
    return out
