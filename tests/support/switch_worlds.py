"""Histories of jobs with switch affinity: nodes below leaves whose domains are SuperPoDs, and what happens there."""

from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from berth.core.cluster.node_packing import SWITCHES
from berth.schemas.envelope import encode
from berth.schemas.facts import Leaf, PodPhase, TopologySeen
from berth.schemas.intake import Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from tests.support.cells import Cell, a_job, a_node

LEAVES: Final = 5
PLACES: Final = 4


class Step(msgspec.Struct, frozen=True):
    """Something that happens: a job comes or ends, a node falls ill or is well again, the leaves change."""

    verb: str
    one: int = 0
    two: int = 0


STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(("common", "common", "model", "model", "plain", "ended", "ended", "health", "leaves")),
        one=st.integers(0, 30),
        two=st.integers(0, 30),
    ),
    min_size=12,
    max_size=24,
)


def nodes() -> list[NodeDescription]:
    """Nodes below leaves whose domains are SuperPoDs, so that each leaf has nodes of two or three domains."""
    return [
        a_node(f"n{leaf}{place}", leaf=f"leaf{leaf}", position=place, superpod=f"pod{(leaf * PLACES + place * 3) % 7}")
        for leaf in range(LEAVES)
        for place in range(PLACES)
    ]


def topology(*, is_single_layer: bool, last: int) -> TopologySeen:
    """Five leaves, in an order that is none of names; of the last one only some places."""
    leaves = []
    for leaf in (3, 0, 4, 1, 2):
        count = last if leaf == 2 else PLACES
        names = [f"n{leaf}{place}" for place in range(count)]
        leaves.append(Leaf(f"leaf{leaf}", f"10.0.0.{leaf}", names, [(place + leaf) % count for place in range(count)]))
    return TopologySeen(SWITCHES, leaves, level="single_layer" if is_single_layer else "double_layer", places=PLACES)


class Way(msgspec.Struct, frozen=True):
    """Under which rules a history takes place."""

    version: str
    shared: int
    parity: bool
    is_single_layer: bool

    @property
    def settings(self) -> dict[str, Any]:
        """As the dispatcher takes them."""
        return {
            "round_gangs_max": 3,
            "nslb_version": self.version,
            "shared_tor_num": self.shared,
            "reference_parity": self.parity,
        }


WAYS = st.builds(
    Way,
    version=st.sampled_from(("1.0", "2.0")),
    shared=st.sampled_from((1, 2)),
    parity=st.booleans(),
    is_single_layer=st.sampled_from((False, False, True)),
)


async def begin(cell: Cell, way: Way) -> None:
    """Publish nodes and leaves."""
    await cell.nodes(nodes())
    fact = topology(is_single_layer=way.is_single_layer, last=PLACES)
    await cell.user.publish(cell.user.subjects.fact_topology(SWITCHES), encode(fact))


async def live(cell: Cell, step: Step, number: int, way: Way) -> None:
    match step.verb:
        case "common" | "model":
            label = "normal-schema" if step.verb == "common" else "large-model-schema"
            replicas = 1 + step.one % 11
            tasks = [Task("worker", replicas, 8)]
            if step.two % 3 == 1:
                tasks.insert(step.one % 2, Task("master", 1 + step.one % 3, 0, (0, 100_000)[step.one % 2]))
            await cell.submit(a_job(f"j{number}", tasks=tasks, labels={"tor-affinity": label}))
        case "plain":
            await cell.submit(a_job(f"j{number}", chips=(8, 4, 1)[step.one % 3], replicas=1 + step.two % 3))
        case "ended":
            placed = sorted(h.name for h in cell.dispatcher.state.fold.holdings.values())
            if placed:
                await cell.pods(placed[step.one % len(placed)], PodPhase.SUCCEEDED)
        case "health":
            node = nodes()[step.one % (LEAVES * PLACES)]
            conditions = [NodeCondition(node.name, unhealthy=step.two % 2)]
            await cell.health(f"superpod-{node.superpod}", conditions)
        case _:
            fact = topology(is_single_layer=way.is_single_layer, last=1 + step.one % PLACES)
            await cell.user.publish(cell.user.subjects.fact_topology(SWITCHES), encode(fact))
