"""``score``: filter, score and best node for one shape on the dispatcher's columns."""

import time
from typing import Final, NamedTuple

import numpy as np

from bench.limits.score import times_ms
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_columns import BYTES_PER_NODE
from berth.core.cluster.node_packing import pack_nodes
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.envelope import encode
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeDescription
from berth.schemas.offers import Shape
from berth.schemas.subjects import Subjects

_DOMAIN_NODES = 1000
_PRODUCT = "module910x8"
_CHIP_FREE = 0.6
_NODE_EMPTY = 0.3
_FULL = 255


class Size(NamedTuple):
    """Size of a run: repetitions, and nodes of each cluster with its target."""

    repeats: int = 31
    nodes: tuple[tuple[int, float | None], ...] = ((10_000, None), (100_000, 1.5), (1_000_000, 20.0))


FULL: Final = Size()
SMALL: Final = Size(repeats=1, nodes=((1_000, None), (2_000, 1.5)))


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for nodes, target_ms in size.nodes:
        state = _cluster(nodes)
        scorer = Scorer(state.table, state.shares, Settings())
        for chips in (1, 4, 8):
            shape = Shape(_PRODUCT, NODE_PRODUCTS[_PRODUCT].resource, chips, 1)
            rows.append(
                row(
                    f"{nodes} nodes, {chips} chips",
                    "filter, score, best",
                    "ms",
                    _times_ms(scorer, shape, size.repeats),
                    limits=times_ms(nodes, size.repeats),
                    target=target_ms,
                )
            )
    rows.append(row("columns", "bytes a node", "bytes", [BYTES_PER_NODE], target=128))
    return Report(bench="score", machine=machine(), rows=rows)


def _times_ms(scorer: Scorer, shape: Shape, repeats: int) -> list[float]:
    scorer.best(shape)
    out = []
    for _ in range(repeats):
        start = time.perf_counter()
        scorer.best(shape)
        out.append((time.perf_counter() - start) * 1000)
    return out


def _cluster(nodes: int) -> State:
    """A cluster of 910A nodes: 30 of 100 empty, on the others each chip free with probability 0.6."""
    product = NODE_PRODUCTS[_PRODUCT]
    state = State()
    said = Subjects("bench")
    for domain in range(nodes // _DOMAIN_NODES):
        described = [
            NodeDescription(
                name=f"node-{domain * _DOMAIN_NODES + index:07d}",
                product=product.name,
                resource=product.resource,
                chips=_FULL,
                allocatable=8,
                cpu_milli=192_000,
                memory_mib=1_500_000,
                labels=dict(product.labels),
            )
            for index in range(_DOMAIN_NODES)
        ]
        state.apply_fact(
            said.fact_node(f"domain-{domain}"), domain + 1, encode(pack_nodes(f"domain-{domain}", described))
        )
    rng = np.random.default_rng(7)
    free = np.packbits(rng.random((nodes, 8)) < _CHIP_FREE, axis=1, bitorder="little")[:, 0].astype(np.uint64)
    free[rng.random(nodes) < _NODE_EMPTY] = _FULL
    table = state.table
    rows = table.view()
    table.used[rows] = _FULL & ~free
    table.free[rows] = free
    table.idle[rows] = np.bitwise_count(free)
    return state
