"""Limit of ``score``: one table look-up a node, health, and the best, in bare numpy."""

import time

import numpy as np


def times_ms(nodes: int, repeats: int) -> list[float]:
    """Milliseconds of each repeat."""
    rng = np.random.default_rng(1)
    free = rng.integers(0, 256, nodes).astype(np.int64)
    health = rng.integers(0, 9, nodes).astype(np.int32)
    table = rng.integers(0, 300, 256).astype(np.int32)
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        scores = table.take(free)
        scores += health
        int(scores.argmax())
        out.append((time.perf_counter() - start) * 1000)
    return out
