"""Pods of others come and take what gangs with constraints would choose: nobody oversleeps who finds room then.

The first pods of a gang go elsewhere when a host port, a place or a resource of their best node is taken, when pods
come that repel them, or that they would rather be near or apart from. What they leave may be just what the next pods of
the gang need. Nothing is given back, and no chips, cpu or memory change. The cells are so small that a gang often finds
room in one way alone.
"""

from typing import Final, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.cluster.node_packing import pack_switches
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import HostPort, PodConstraints, PreferredPods, SpreadTerm
from berth.schemas.usage_facts import UsageSeen
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, NONE, OneNode, OnePod, having, near, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell

EXAMPLES: Final = 500
_APPS: Final = st.sampled_from(("a", "b"))
_PORT: Final = PodConstraints(ports=(HostPort(80),))
_RDMA: Final = PodConstraints(resources=(("rdma/hca", 1),))
_FIRST: Final = (
    NONE,
    _PORT,
    _PORT,
    _RDMA,
    _RDMA,
    PodConstraints(preferred_near=(PreferredPods(5, near("zone", app="b")),)),
    PodConstraints(preferred_apart=(PreferredPods(5, near(HOST, app="b")),)),
    PodConstraints(preferred_spread=(SpreadTerm("zone", 1, having(app="b")),)),
)
"""Constraints of the first pods of a gang."""
_NEXT: Final = (
    NONE,
    PodConstraints(anti_affinity=(near(HOST, app="a"),)),
    PodConstraints(anti_affinity=(near("zone", app="b"),)),
    PodConstraints(affinity=(near("zone", app="a"),)),
    PodConstraints(spread=(SpreadTerm("zone", 1, having(app="a")),)),
    PodConstraints(spread=(SpreadTerm(HOST, 1, having(app="a"), min_domains=2),)),
)
"""Constraints of the pods behind them."""
_OTHERS: Final = (
    PodConstraints(ports=(HostPort(80),), resources=(("rdma/hca", 1),)),
    PodConstraints(ports=(HostPort(80),), anti_affinity=(near(HOST, app="a"),)),
    PodConstraints(resources=(("rdma/hca", 1),), anti_affinity=(near("zone", app="b"),)),
)
"""Constraints of pods that come."""
_PLANNED: Final[dict[str, dict[str, dict[str, str]]]] = {
    "": {},
    "leaves": {"labels": {"tor-affinity": "large-model-schema"}},
    "blocks": {"annotations": {"huawei.com/schedule_policy": "chip8-node8-sp", "sp-block": "8"}},
}
"""What a gang says that is planned on leaf switches or on blocks."""


class World(NamedTuple):
    """A cell of few nodes with eight chips each, and a gang of pods that take a whole node.

    Attributes:
        plans: What the gang is planned on; empty for none.
        nodes: Zone of each node, and the most pods that it allows.
        pods: Label, zone and constraints of each pod of the gang; no zone: it may go anywhere.
    """

    plans: str
    nodes: list[tuple[str, int]]
    pods: list[tuple[str, str, PodConstraints]]

    @property
    def product(self) -> str:
        """Product of the nodes."""
        return "superpod850x8" if self.plans == "blocks" else "module910bx8"

    def job(self) -> JobRequest:
        """The gang."""
        job = a_job("gang", product=self.product)
        tasks = [
            Task(f"task-{rank}", 1, 8, labels={"app": app}, constraints=wanted, node_selector=job.node_selector | zones)
            for rank, (app, zone, wanted) in enumerate(self.pods)
            for zones in ({"zone": zone} if zone else {},)
        ]
        return msgspec.structs.replace(job, tasks=tasks, **_PLANNED[self.plans])

    def cell(self) -> CoreCell:
        """The cell without pods."""
        nodes = []
        for number, (zone, _) in enumerate(self.nodes):
            place = (
                {"superpod": str(number // 2), "rack": "0"} if self.plans == "blocks" else {"leaf": f"l{number % 2}"}
            )
            node = a_node(f"n{number}", self.product, position=number, **place)
            nodes.append(msgspec.structs.replace(node, labels={**node.labels, "zone": zone}))
        cell = CoreCell(nodes, super_pod_size=2, reserve_nodes=0)
        if self.plans == "leaves":
            cell.fact(SUBJECTS.fact_topology("switch"), pack_switches(nodes))
        return cell

    def usage(self, came: list[tuple[int, str, PodConstraints]]) -> UsageSeen:
        """The fact of the pods that came: number of the node, label and constraints of each."""
        nodes = [OneNode(f"n{number}", {}, most, {"rdma/hca": 1}) for number, (_, most) in enumerate(self.nodes)]
        pods = [OnePod(nodes[at % len(nodes)].name, "default", {"app": app}, own) for at, app, own in came]
        return usage_of("all", nodes, pods)


def pods(
    constraints: tuple[PodConstraints, ...], zones: tuple[str, ...]
) -> st.SearchStrategy[tuple[str, str, PodConstraints]]:
    """Pods of a gang."""
    return st.tuples(_APPS, st.sampled_from(zones), st.sampled_from(constraints))


WORLDS: Final = st.builds(
    World,
    st.sampled_from(("", "", "", "leaves", "blocks")),
    st.builds(
        lambda most, others: [("x", most), *others],
        st.sampled_from((110, 110, 1)),
        st.lists(st.tuples(st.sampled_from(("y", "y", "x")), st.sampled_from((110, 110, 1))), min_size=1, max_size=3),
    ),
    st.builds(
        lambda first, others: [first, *others],
        pods(_FIRST, ("", "", "x")),
        st.lists(pods(_NEXT, ("", "x", "y")), min_size=1, max_size=2),
    ),
)
COMING: Final = st.lists(
    st.tuples(st.sampled_from((0, 0, 0, 1, 2)), _APPS, st.sampled_from(_OTHERS)), min_size=1, max_size=3
)


@settings(max_examples=EXAMPLES)
@given(world=WORLDS, coming=COMING)
def test_a_gang_is_placed_by_the_pod_that_lets_it_fit(
    world: World, coming: list[tuple[int, str, PodConstraints]]
) -> None:
    """At every step a cell that has seen nothing before places the gang in the same way."""
    cell = world.cell()
    cell.fact(SUBJECTS.fact_usage("all"), world.usage([]))
    cell.ask(world.job())
    if cell.decide()[0].placement is not None:
        return
    for step in range(1, len(coming) + 1):
        usage = world.usage(coming[:step])
        anew = world.cell()
        for one in (cell, anew):
            one.fact(SUBJECTS.fact_usage("all"), usage)
        anew.ask(world.job())
        wanted = anew.decide()[0].placement
        found = [verdict.placement for verdict in cell.decide()]
        assert wanted is None or found == [wanted]
        if wanted is not None:
            return
