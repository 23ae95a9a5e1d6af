"""What would help a job that waits: it is placed once those events have happened, and not without any one of them."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_packing import pack_switches
from berth.core.explain.evidence import Event
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell, asked, on
from tests.unit.core.explain.test_superpod_explanation import on as filling
from tests.unit.services.dispatcher.test_superpods import A3, in_blocks

Nodes = list[tuple[bool, NodeHealth, int]]
"""Cordoned, level and unhealthy chips of each node."""
Held = list[tuple[int, int, int]]
"""Chips a pod, pods and declared run time of each job."""
_LEVELS = st.sampled_from((NodeHealth.OK, NodeHealth.OK, NodeHealth.OK, NodeHealth.NO_NEW_WORK))
_NODES = st.tuples(st.sampled_from((False, False, True)), _LEVELS, st.sampled_from((0, 0, 1)))
_JOBS = st.tuples(st.sampled_from((1, 2, 4, 8)), st.integers(1, 2), st.sampled_from((0, 0, 5_000, 90_000)))


def living(nodes: Nodes, held: Held) -> CoreCell:
    """The same history each time: some jobs run, nobody waits."""
    ground = CoreCell([a_node(f"n{number}", cordoned=cordoned) for number, (cordoned, _, _) in enumerate(nodes)])
    ground.conditions = {
        name: NodeCondition(name, level=level, unhealthy=unhealthy)
        for name, (_, level, unhealthy) in zip(ground.nodes, nodes, strict=True)
    }
    ground.publish()
    ground.ask(
        *(
            a_job(f"job-{number}", chips=chips, replicas=pods, run_ms=run_ms)
            for number, (chips, pods, run_ms) in enumerate(held)
        )
    )
    for verdict in ground.decide():
        if verdict.placement is None:
            ground.take_back(verdict.name)
    return ground


def follows(ground: CoreCell, big: JobRequest, events: Sequence[Event]) -> bool:
    """Whether a job that is refused is placed after some events."""
    assert asked(ground, big)[0].placement is None
    for event in events:
        ground.happen(event)
    return [verdict.name for verdict in ground.decide() if verdict.placement is not None] == ["big"]


@given(
    nodes=st.lists(_NODES, min_size=2, max_size=8),
    held=st.lists(_JOBS, max_size=14),
    chips=st.sampled_from((2, 4, 8)),
    pods=st.integers(1, 6),
)
def test_it_is_placed_after_the_events_and_not_without_any_of_them(
    nodes: Nodes, held: Held, chips: int, pods: int
) -> None:
    big = a_job("big", chips=chips, replicas=pods)
    ground = living(nodes, held)
    (verdict,) = asked(ground, big)
    if verdict.refusal is None:
        return
    found = ground.unblocking(big, verdict.refusal)
    assert found.is_whole
    for way in found.ways:
        assert follows(living(nodes, held), big, way.events), way
        for left_out in way.events:
            fewer = [event for event in way.events if event is not left_out]
            assert not follows(living(nodes, held), big, fewer), (way, left_out)
    ends = [Event("job-ends", uid=uid, attempt=attempt) for uid, attempt in sorted(ground.state.fold.holdings)]
    assert follows(living(nodes, held), big, ends) == found.ends_help


def among(held: Sequence[tuple[int, int]], *, blocks: bool) -> CoreCell:
    """Twelve nodes below leaves, or in SuperPoDs, of four, and jobs on some of them."""
    product = A3 if blocks else "module910bx8"
    place = "superpod" if blocks else "leaf"
    nodes = [
        a_node(f"n{number:02d}", product, **{place: str(number // 4)}, position=number % 4) for number in range(12)
    ]
    ground = CoreCell(nodes, super_pod_size=4, reserve_nodes=1)
    if not blocks:
        ground.fact(SUBJECTS.fact_topology("switch"), pack_switches(nodes))
    for number, (node, run_ms) in enumerate(held):
        job = filling(f"n{node:02d}") if blocks else a_job("x", chips=8, node_selector=on(f"n{node:02d}"))
        ground.ask(msgspec.structs.replace(job, name=f"job-{number}", uid=f"uid-{number}", run_ms=run_ms))
        ground.decide()
        if ground.state.fold.gangs[f"uid-{number}"].phase == "waiting":
            ground.take_back(f"job-{number}")
    return ground


@given(
    held=st.lists(st.tuples(st.integers(0, 11), st.sampled_from((0, 5_000, 90_000))), min_size=3, max_size=12),
    affinity=st.sampled_from(("normal-schema", "large-model-schema", "2 nodes a block", "4 nodes a block")),
    pods=st.sampled_from((2, 4, 8)),
)
def test_so_it_is_with_gangs_that_are_planned_whole(held: Sequence[tuple[int, int]], affinity: str, pods: int) -> None:
    blocks = affinity.endswith("block")
    size = min(pods, int(affinity[0])) if blocks else 0
    big = (
        in_blocks("big", pods, size)
        if blocks
        else a_job("big", chips=8, replicas=pods, labels={"tor-affinity": affinity})
    )
    ground = among(held, blocks=blocks)
    (verdict,) = asked(ground, big)
    if verdict.refusal is None:
        return
    found = ground.unblocking(big, verdict.refusal)
    assert found.is_whole
    assert found.ways or not found.ends_help
    for way in found.ways:
        assert follows(among(held, blocks=blocks), big, way.events), way
        for left_out in way.events:
            fewer = [event for event in way.events if event is not left_out]
            assert not follows(among(held, blocks=blocks), big, fewer), (way, left_out)
