"""Histories of a cell: steps that a test draws, and how a cell lives through them.

A step is plain data and names jobs, nodes and domains by number; what a number means is looked up in the cell at that
moment, so any list of steps is a possible history.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from hypothesis import strategies as st

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_nodes
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import pack, pack_names
from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth, OutcomeSeen, OutcomeState, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from tests.support.cells import Cell, a_job, a_node

LEAVES: Final = 6
PRODUCTS: Final = (
    "module910bx8",
    "module910x8",
    "module910a3x16",
    "module910bx16",
    "chip4-node8",
    "module910a3x8",
    "soft-share",
)
SIZES: Final[dict[str, tuple[int, ...]]] = {
    "module910bx8": (1, 2, 4, 8, 0),
    "module910x8": (1, 2, 4, 8),
    "module910a3x16": (2, 4, 8, 16),
    "module910bx16": (1, 4, 8, 10, 16),
    "chip4-node8": (1, 2, 4, 8),
    "module910a3x8": (2, 4, 8),
    "soft-share": (1,),
}
ZONES: Final = ("red", "blue")


class Step(msgspec.Struct, frozen=True):
    """One event of a history; what the numbers mean depends on ``verb``."""

    verb: str
    one: int = 0
    two: int = 0
    three: int = 0
    flag: bool = False


def nodes_of_a_small_cell() -> dict[str, NodeDescription]:
    """Three or four nodes of each product below six leaves, in an order of names that is no order of products."""
    nodes = {}
    for number in range(24):
        product = PRODUCTS[number * 5 % len(PRODUCTS)]
        name = f"n{number * 7 % 24:02d}"
        labels = dict(NODE_PRODUCTS[product].labels) | {"zone": ZONES[number % 2]}
        taints = [Taint("team", "a")] if number == 3 else []
        nodes[name] = a_node(name, product, leaf=f"leaf{number // 2 % LEAVES}", labels=labels, taints=taints)
    return nodes


_COUNT = st.integers(0, 40)
STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(
            ("submit",) * 8
            + ("ended",) * 3
            + (
                "health",
                "health",
                "cancel",
                "terminating",
                "bound",
                "bind-failed",
                "evicted",
                "nodes",
                "foreign",
                "time",
            )
        ),
        one=_COUNT,
        two=_COUNT,
        three=_COUNT,
        flag=st.booleans(),
    ),
    min_size=25,
    max_size=45,
)


def a_request(number: int, step: Step) -> JobRequest:
    """Job ``number`` of a history."""
    product = PRODUCTS[step.one % len(PRODUCTS)]
    sizes = SIZES[product]
    chips = sizes[step.two % len(sizes)]
    replicas = 1 if product == "module910x8" and chips < 8 else (1, 1, 2, 3)[step.three % 4]
    cpu, memory = ((0, 0), (0, 0), (30_000, 100_000), (100_000, 0), (0, 900_000))[step.three % 5]
    selector = dict(NODE_PRODUCTS[product].selector)
    affinity: list[Term] = []
    tolerations: list[Toleration] = []
    match (step.one + step.two) % 9:
        case 1:
            selector["zone"] = ZONES[step.three % 2]
        case 2:
            affinity = [Term((Expression("zone", "NotIn", (ZONES[step.three % 2],)),))]
        case 3:
            tolerations = [Toleration(key="team", operator="Exists")]
        case 4 if step.flag:
            affinity = [Term((Expression("metadata.name", "In", tuple(f"n{even:02d}" for even in range(0, 24, 2))),))]
    labels = dict(NODE_PRODUCTS[product].job_labels)
    if step.flag:
        labels["subHealthyStrategy"] = "graceExit"
    if product == "soft-share":
        labels |= {
            "huawei.com/scheduler.softShareDev.aicoreQuota": str((20, 40, 55)[step.two % 3]),
            "huawei.com/scheduler.softShareDev.hbmQuota": str((4_000, 30_000)[step.three % 2]),
            "huawei.com/scheduler.softShareDev.policy": ("elastic", "fixed-share")[step.two % 2],
        }
    task = Task("worker", replicas, chips, cpu, memory, affinity=affinity, tolerations=tolerations)
    tasks = [task]
    if step.flag and product not in {"module910x8", "soft-share"} and chips:
        tasks.append(Task("other", 1 + step.two % 2, sizes[0] if sizes[0] > 1 else 2, cpu // 2))
    if step.two % 3 == 1:
        tasks.insert(step.three % 2, Task("master", 1 + step.one % 2, 0, cpu, affinity=affinity))
    return a_job(
        f"job{number}",
        product=product,
        tasks=tasks,
        priority=step.three % 3,
        node_selector=selector,
        labels=labels,
    )


class World:
    """A cell and the nodes that its facts describe."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.nodes: dict[str, NodeDescription] = {}
        self.jobs = 0
        self.foreign = 0
        self._domains: dict[str, list[str]] = {}

    async def begin(self, nodes: dict[str, NodeDescription]) -> None:
        await self.become(nodes)
        await self.cell.turns()

    async def live(self, steps: Sequence[Step]) -> None:
        """Go through a history, a round after each step or every few."""
        for step in steps:
            await self.act(step)
            if step.three % 3:
                await self.cell.turns()
        await self.cell.turns(3)

    async def become(self, nodes: dict[str, NodeDescription]) -> None:
        """Publish what changed; a node that changes its domain leaves the old one first."""
        old, self.nodes = self.nodes, dict(nodes)
        now = domains(nodes.values())
        touched = [
            domain
            for domain in sorted(self._domains | now)
            if self._domains.get(domain) != now.get(domain)
            or any(old.get(name) != nodes[name] for name in now.get(domain, ()))
        ]
        last = {name: domain for domain, names in self._domains.items() for name in names}
        stays = {
            domain: [name for name in now.get(domain, ()) if last.get(name, domain) == domain] for domain in touched
        }
        for names in (stays, {domain: now.get(domain, []) for domain in touched}):
            for domain in touched:
                if names is stays and stays[domain] == now.get(domain, []):
                    continue
                await self._publish_nodes(domain, [nodes[name] for name in names[domain]])
        self._domains = now

    async def _publish_nodes(self, domain: str, nodes: Sequence[NodeDescription]) -> None:
        user = self.cell.user
        fact = pack_nodes(domain, nodes, at_ms=self.cell.clock.now_ms())
        await user.publish(user.subjects.fact_node(domain), encode(fact))

    async def act(self, step: Step) -> None:
        match step.verb:
            case "submit":
                await self.cell.submit(a_request(self.jobs, step))
                self.jobs += 1
            case "cancel":
                await self.cell.cancel(f"job{step.one % max(self.jobs, 1)}")
            case "health":
                await self._health(step)
            case "nodes":
                await self._nodes(step)
            case "ended" | "terminating":
                await self._pods(step)
            case "bound" | "bind-failed" | "evicted":
                await self._outcome(step)
            case "foreign":
                await self._foreign(step)
            case _:
                self.cell.clock.advance(step.one)

    async def _health(self, step: Step) -> None:
        if not self._domains:
            return
        names = sorted(self._domains)
        domain = names[step.one % len(names)]
        all_names = sorted(nodes_of_a_small_cell())  # one that is not of the domain, or not any more, may be named too
        level = (NodeHealth.OK, NodeHealth.OK, NodeHealth.SUB_HEALTHY, NodeHealth.NO_NEW_WORK, NodeHealth.EVICT)
        conditions = [
            NodeCondition(
                name,
                unhealthy=0x11 * (step.two % 16) if index % 2 == step.three % 2 else 0,
                recovering=step.three % 2,
                network_unhealthy=step.three % 8,
                level=level[(step.two + index) % len(level)] if step.flag else NodeHealth.OK,
                network_known=step.two % 7 != 3,
                withheld=0b110 if (step.one + index) % 4 == 1 else 0,
            )
            for index, name in enumerate(sorted({*self._domains[domain], all_names[step.two % len(all_names)]}))
            if (index + step.three) % 5
        ]
        await self.cell.health(domain, conditions)

    async def _nodes(self, step: Step) -> None:
        changed = dict(self.nodes)
        names = sorted(nodes_of_a_small_cell())
        name = names[step.two % len(names)]
        node = changed.get(name)
        replace = msgspec.structs.replace
        if node is None:
            changed[name] = nodes_of_a_small_cell()[name]
        else:
            match step.one % 8:
                case 0:
                    del changed[name]
                case 1:
                    changed[name] = replace(node, leaf=f"leaf{step.three % LEAVES}")
                case 2:
                    changed[name] = replace(node, superpod=f"pod{step.three % 2}" if not node.superpod else "")
                case 3:
                    changed[name] = replace(node, cordoned=not node.cordoned)
                case 4:
                    labels = dict(node.labels) | {"zone": ZONES[step.three % 2]}
                    changed[name] = replace(node, labels=labels, ready=step.flag)
                case 5:
                    changed[name] = replace(node, cpu_milli=(20_000, 192_000)[step.three % 2])
                case 6:
                    moved = node.chips & ~(1 << step.three % 8) if node.chips.bit_count() > 6 else node.chips << 1 | 1
                    changed[name] = replace(node, chips=moved & 0xFFFF, allocatable=(moved & 0xFFFF).bit_count())
                case _:
                    changed[name] = replace(node, allocatable=max(node.allocatable - step.three % 3, 0))
        await self.become(changed)

    def _placed(self, number: int) -> tuple[str, str, int] | None:
        """Some job that holds chips: its name, uid and attempt."""
        fold = self.cell.dispatcher.state.fold
        keys = [key for key in sorted(fold.holdings) if not fold.holdings[key].foreign]
        if not keys:
            return None
        holding = fold.holdings[keys[number % len(keys)]]
        return holding.name, holding.uid, holding.attempt

    async def _pods(self, step: Step) -> None:
        found = self._placed(step.one)
        if found is None:
            return
        phases = (PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE, PodPhase.RUNNING)
        phase = PodPhase.TERMINATING if step.verb == "terminating" else phases[step.two % 4]
        holding = self.cell.dispatcher.state.fold.holdings[found[1], found[2]]
        nodes = holding.placement.names()
        ranks = [rank for rank in range(len(nodes)) if not (step.flag and rank % 2)]
        await self._publish_pods(found, [nodes[rank] for rank in ranks], ranks, [phase] * len(ranks))

    async def _publish_pods(
        self, key: tuple[str, str, int], nodes: list[str], ranks: list[int], phases: list[PodPhase], chips: bytes = b""
    ) -> None:
        name, uid, attempt = key
        foreign = name.startswith("foreign")
        table = sorted(set(nodes))
        fact = PodsSeen(
            namespace="default",
            gang=name,
            uid=uid,
            attempt=attempt,
            rank=pack(ranks, 4),
            nodes=pack_names(table),
            node_index=pack([table.index(node) for node in nodes], 4),
            phase=pack(phases, 1),
            chips=chips or pack([0] * len(ranks), 8),
            cpu_milli=1000 if foreign else 0,
            foreign=foreign,
            at_ms=self.cell.clock.now_ms(),
        )
        user = self.cell.user
        await user.publish(user.subjects.fact_pod("default", name), encode(fact))

    async def _outcome(self, step: Step) -> None:
        found = self._placed(step.one)
        if found is None:
            return
        states: dict[str, OutcomeState] = {"bound": "bound", "bind-failed": "failed", "evicted": "evicted"}
        name, uid, attempt = found
        fact = OutcomeSeen("default", name, uid, attempt, states[step.verb], bound=int(step.flag))
        user = self.cell.user
        await user.publish(user.subjects.fact_outcome("default", name), encode(fact))

    async def _foreign(self, step: Step) -> None:
        """Pods of another scheduler come, or go, on chips that the ledger may have given to others."""
        names = sorted(self.nodes)
        if not names:
            return
        if step.flag and self.foreign:
            number = step.one % self.foreign
            await self._publish_pods((f"foreign{number}", f"uid-foreign{number}", 0), [], [], [])
            return
        number = self.foreign
        self.foreign += 1
        nodes = [names[step.one % len(names)], names[step.two % len(names)]]
        masks = [1 << step.three % 8, 2 << step.three % 8]
        await self._publish_pods(
            (f"foreign{number}", f"uid-foreign{number}", 0),
            nodes,
            [0, 1],
            [PodPhase.RUNNING, PodPhase.RUNNING],
            chips=pack(masks, 8),
        )
