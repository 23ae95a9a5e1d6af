"""Limits of ``replay``: the same entries decoded and nothing else, and a first fit over an array of nodes."""

import time
from collections.abc import Sequence

import msgspec
import numpy as np


def decode_s(entries: Sequence[bytes]) -> float:
    """Seconds to decode every entry as untyped MessagePack."""
    decode = msgspec.msgpack.Decoder().decode
    began_s = time.perf_counter()
    for entry in entries:
        decode(entry)
    return time.perf_counter() - began_s


def first_fit_s(nodes: int, chips: int, decisions: int) -> float:
    """Seconds for so many decisions, each one pod on the fullest node that fits, in bare numpy.

    Args:
        nodes: Nodes of the cluster.
        chips: Chips of each node.
        decisions: How many pods are placed; the oldest pod ends when nothing is free.
    """
    rng = np.random.default_rng(1)
    free = np.full(nodes, chips, np.int64)
    wants = rng.integers(1, chips + 1, decisions).tolist()
    running: list[tuple[int, int]] = []
    oldest = 0
    began_s = time.perf_counter()
    for wanted in wants:
        while True:
            left = np.where(free >= wanted, free, chips + 1)
            best = int(left.argmin())
            if left[best] <= chips:
                break
            node, held = running[oldest]
            free[node] += held
            oldest += 1
        free[best] -= wanted
        running.append((best, wanted))
    return time.perf_counter() - began_s
