"""Histories of jobs with SuperPoD affinity: nodes of three products in SuperPoDs, racks and levels, and events."""

from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.facts import NodeHealth, PodPhase
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from tests.support.cells import Cell, a_job, a_node

PODS: Final = 6
WIDTH: Final = 7
CONFIG: Final = '{"default": {"level1": {"label": "rack", "reservedNode": 1}, "level2": {"label": "row"}}}'
PRODUCTS: Final = ("superpod910a3x16", "superpod850x8", "superpod950x8")
POLICIES: Final = {
    "superpod910a3x16": "chip2-node16-sp",
    "superpod850x8": "chip8-node8-sp",
    "superpod950x8": "chip8-node8-ra64-sp",
}
VERBS: Final = ("hard", "hard", "soft", "service", "mindie", "levels", "plain", "ended", "ended", "health", "nodes")


class Step(msgspec.Struct, frozen=True):
    """Something that happens: a job comes or ends, a node falls ill or is well again, nodes come and go."""

    verb: str
    one: int = 0
    two: int = 0


class Way(msgspec.Struct, frozen=True):
    """Under which rules a history takes place."""

    reserve: int
    size: int
    parity: bool

    @property
    def settings(self) -> dict[str, Any]:
        """As the dispatcher takes them."""
        return {
            "round_gangs_max": 3,
            "reserve_nodes": self.reserve,
            "super_pod_size": self.size,
            "reference_parity": self.parity,
            "resource_levels": CONFIG,
        }


STEPS = st.lists(
    st.builds(Step, verb=st.sampled_from(VERBS), one=st.integers(0, 30), two=st.integers(0, 30)),
    min_size=10,
    max_size=20,
)


def nodes(last: int = WIDTH) -> list[NodeDescription]:
    """Nodes of three products in SuperPoDs, with racks and labels of levels; of the last SuperPoD only some."""
    return [
        a_node(
            f"n{pod}{index}",
            PRODUCTS[pod % len(PRODUCTS)],
            superpod=str(pod * 5 % PODS),
            rack=str(index // 3),
            labels=dict(NODE_PRODUCTS[PRODUCTS[pod % len(PRODUCTS)]].labels)
            | {"rack": f"r{pod}-{index // 3}", "row": f"w{pod // 2}"},
        )
        for pod in range(PODS)
        for index in range(last if pod == PODS - 1 else WIDTH)
    ]


def a_request(number: int, step: Step) -> JobRequest:
    product = PRODUCTS[step.two % len(PRODUCTS)]
    chips = NODE_PRODUCTS[product].chips
    block, count = 1 + step.one % 3, 1 + step.two % 3
    annotations = {"huawei.com/schedule_policy": POLICIES[product], "sp-block": str(chips * block)}
    labels = dict(NODE_PRODUCTS[product].job_labels)
    match step.verb:
        case "soft":
            labels["super-pod-affinity"] = "soft"
        case "service":
            labels["inferserviceid"] = f"s{step.one % 2}"
        case "mindie":
            labels |= {"app": "mindie", "jobID": f"j{step.one % 2}"}
            annotations["sp-fit"] = ("idlest", "")[step.one % 2]
        case "levels":
            sizes = f"level1={block},level2={block * 2}"
            annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": sizes}
            count = 2
        case "plain":
            annotations["sp-block"] = str(chips)
        case _:
            pass
    tasks = [Task("worker", 1 if step.verb == "plain" else block * count, chips)]
    if step.two % 4 == 3:
        tasks.insert(step.one % 2, Task("master", 1 + step.one % 3, 0, (0, 100_000)[step.one % 2]))
    return a_job(
        f"j{number}",
        product=product,
        tasks=tasks,
        annotations=annotations,
        labels=labels,
        near={"app": "mindie"} if step.verb == "mindie" and step.two % 2 else {},
    )


WAYS = st.builds(Way, reserve=st.integers(0, 3), size=st.sampled_from((4, 8, 48)), parity=st.booleans())


async def live(cell: Cell, step: Step, number: int) -> None:
    match step.verb:
        case "ended":
            placed = sorted(holding.name for holding in cell.dispatcher.state.fold.holdings.values())
            if placed:
                await cell.pods(placed[step.one % len(placed)], PodPhase.SUCCEEDED)
        case "health":
            node = nodes()[step.one % (PODS * WIDTH - 1)]
            level = NodeHealth.SUB_HEALTHY if step.two % 2 else NodeHealth.OK
            condition = NodeCondition(
                node.name, unhealthy=step.two % 3 == 1, network_unhealthy=step.two % 2, level=level
            )
            await cell.health(f"superpod-{node.superpod}", [condition])
        case "nodes":
            await cell.nodes(nodes(1 + step.one % WIDTH))
        case _:
            await cell.submit(a_request(number, step))
