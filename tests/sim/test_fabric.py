"""The planner of the simulation finds nodes below leaves and in blocks where there are some for certain."""

from collections.abc import Sequence

import msgspec
import pytest

from berth.core.state.holdings.holding import Holding
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import HealthSeen, Leaf, NodeClass, NodesSeen, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement, Run
from berth.schemas.pod_constraints import PodConstraints
from berth.schemas.refusal import BlockLack, Refusal
from berth.schemas.volume_facts import ClaimSeen
from tests.sim.planner import Planner

RESOURCE = "huawei.com/Ascend910"
FORM = "module910bx8"
LARGE, COMMON = "large-model-schema", "normal-schema"


def facts(nodes: int, superpods: Sequence[int] = (), racks: Sequence[int] = ()) -> dict[str, bytes]:
    """Nodes of eight chips; SuperPoD and rack of each, from 1."""
    names = [f"n{number}" for number in range(nodes)]
    zeros = pack([0] * nodes, 8)
    seen = NodesSeen(
        "d",
        pack_names(names),
        [NodeClass("p", RESOURCE)],
        pack([0] * nodes, 2),
        pack([0xFF] * nodes, 8),
        pack([8] * nodes, 2),
        pack([8_000] * nodes, 4),
        pack([8_192] * nodes, 4),
        superpods=[str(number) for number in range(max(superpods, default=0))],
        superpod_index=pack(superpods, 4) if superpods else b"",
        racks=[str(number) for number in range(max(racks, default=0))],
        rack_index=pack(racks, 4) if racks else b"",
    )
    health = HealthSeen("d", pack_names(names), zeros, zeros, zeros, pack([0] * nodes, 1), pack([1] * nodes, 1))
    return {"berth.c.fact.node.d": encode(seen), "berth.c.fact.health.d": encode(health)}


def leaves(*lists: str, level: str = "double_layer") -> dict[str, bytes]:
    """Leaves with their nodes, as numbers; a dot is a place without one."""
    found = [
        Leaf(f"l{number}", f"l{number}", ["" if name == "." else f"n{name}" for name in names])
        for number, names in enumerate(lists)
    ]
    return {"berth.c.fact.topology": encode(TopologySeen("tor", found, level=level))}


def held(*nodes: str) -> Holding:
    """A job with a whole node each."""
    run = Run(len(nodes), 8, 0, 0)
    placement = Placement(
        pack_names(list(nodes)), pack(list(range(len(nodes))), 4), [run], bytes(range(8)) * len(nodes), RESOURCE
    )
    return Holding("ns", "other", "o", 1, placement, 1, 0)


def a_job(pods: int, schema: str = "", **annotations: str) -> JobRequest:
    labels = {"tor-affinity": schema} if schema else {}
    if soft := annotations.pop("soft", ""):
        labels["super-pod-affinity"] = soft
    said = {key.replace("_", "-"): value for key, value in annotations.items()}
    return JobRequest("ns", "j", "u", RESOURCE, [Task("t", pods, 8)], labels=labels, annotations=said)


def found(
    known: dict[str, bytes], request: JobRequest, refusal: Refusal, *holdings: Holding, **settings: object
) -> bool:
    planner = Planner(known, holdings, msgspec.structs.replace(Settings(), **settings))
    place = planner.could_place(request, refusal)
    assert planner.count["judged"] == 1
    return bool(place)


@pytest.mark.parametrize(
    ("schema", "pods", "version", "fits"),
    [
        (LARGE, 3, "1.0", False),
        (LARGE, 3, "2.0", False),
        (COMMON, 3, "1.0", True),
        (COMMON, 5, "1.0", True),
        (COMMON, 6, "2.0", True),
        (LARGE, 5, "2.0", True),
        (LARGE, 4, "1.0", True),
        (LARGE, 5, "1.0", True),
        (LARGE, 6, "1.0", False),
    ],
)
def test_leaves_of_three_and_of_two_of_three(schema: str, pods: int, version: str, *, fits: bool) -> None:
    known = facts(7) | leaves("012", "34.", ".6.")
    request = a_job(pods, schema)
    assert found(known, request, Refusal("no-leaf", form=FORM), nslb_version=version) is fits


def test_a_large_model_of_few_pods_stays_below_one_leaf() -> None:
    known = facts(4) | leaves("01", "23")
    assert found(known, a_job(2, LARGE), Refusal("no-leaf", form=FORM)) is False
    three = facts(5) | leaves("012", "34.")
    assert found(three, a_job(2, LARGE), Refusal("no-leaf", form=FORM))
    assert not found(three, a_job(3, LARGE), Refusal("no-leaf", form=FORM), held("n0"))


def test_a_common_job_takes_what_is_free() -> None:
    known = facts(5) | leaves("012", "34.")
    assert found(known, a_job(4, COMMON), Refusal("no-leaves", form=FORM), held("n0"))
    assert not found(known, a_job(5, COMMON), Refusal("no-leaves", form=FORM), held("n0"))


def test_leaves_that_a_job_crosses_are_no_certain_place() -> None:
    known = facts(8) | leaves("0123", "4567")
    assert found(known, a_job(5, COMMON), Refusal("no-leaves", form=FORM), held("n0", "n1"))
    assert not found(known, a_job(5, COMMON), Refusal("no-leaves", form=FORM), held("n0", "n4"))


def test_on_a_single_layer_all_pods_are_below_one_leaf() -> None:
    known = facts(5) | leaves("012", "34.", level="single_layer")
    assert found(known, a_job(3, COMMON), Refusal("no-leaf", form=FORM))
    assert not found(known, a_job(4, COMMON), Refusal("no-leaf", form=FORM))


@pytest.mark.parametrize(("of_all", "fits"), [("3", True), ("4", False)])
def test_on_a_single_layer_a_late_pod_has_a_place_if_all_pods_of_its_gang_are_no_more_than_a_leaf_has(
    of_all: str, *, fits: bool
) -> None:
    known = facts(5) | leaves("012", "34.", level="single_layer")
    late = msgspec.structs.replace(a_job(1, COMMON), annotations={"berth/gang-pods": of_all})
    assert found(known, late, Refusal("no-leaf", form=FORM), held("n0", "n1")) is fits


def test_without_leaves_there_is_no_topology() -> None:
    request, refusal = a_job(2, COMMON), Refusal("no-topology", form=FORM)
    assert not found(facts(2), request, refusal)
    assert found(facts(2) | leaves("01"), request, refusal)


@pytest.mark.parametrize(
    ("pods", "block", "soft", "size", "fits"),
    [
        (4, "16", "", 48, True),
        (6, "16", "", 48, False),
        (6, "16", "soft", 48, True),
        (6, "8", "", 48, True),
        (3, "24", "", 48, True),
        (6, "24", "", 48, True),
        (4, "16", "", 2, False),
        (1, "8", "", 48, True),
    ],
)
def test_blocks_are_in_one_superpod_each(pods: int, block: str, soft: str, size: int, *, fits: bool) -> None:
    known = facts(6, superpods=(1, 1, 1, 2, 2, 2))
    request = a_job(pods, sp_block=block, soft=soft)
    refusal = Refusal("no-blocks", form="chip8-node8-sp", blocks=BlockLack("blocks", 1, 0, 1))
    assert found(known, request, refusal, super_pod_size=size) is fits


def test_a_job_that_names_no_block_is_one() -> None:
    known = facts(6, superpods=(1, 1, 1, 2, 2, 2))
    assert found(known, a_job(3), Refusal("no-blocks", form="chip8-node8-sp"))
    assert not found(known, a_job(4), Refusal("no-blocks", form="chip8-node8-sp"))


@pytest.mark.parametrize(
    ("pods", "block", "part", "fits"),
    [(2, "16", "16", True), (3, "24", "8", True), (4, "32", "16", True), (6, "16", "16", False), (4, "16", "16", True)],
)
def test_parts_of_blocks_are_in_one_rack(pods: int, block: str, part: str, *, fits: bool) -> None:
    known = facts(6, superpods=(1, 1, 1, 1, 1, 1), racks=(1, 1, 1, 2, 2, 2))
    request = a_job(pods, sp_block=block, ra_block=part)
    refusal = Refusal("no-blocks", form="chip8-node8-ra64-sp", blocks=BlockLack("rack", 1, 0, 1))
    assert found(known, request, refusal) is fits


def test_a_node_that_some_pod_may_not_use_has_no_room_for_a_group() -> None:
    known = facts(2, superpods=(1, 1))
    request = a_job(2, sp_block="16")
    refusal = Refusal("no-blocks", form="chip8-node8-sp")
    assert found(known, request, refusal)
    other = msgspec.structs.replace(request, tasks=[Task("a", 1, 8), Task("b", 1, 8, 9_000)])
    assert not found(known, other, refusal)
    assert not found(known, request, refusal, held("n1"))


def test_a_claim_that_is_not_there_is_judged() -> None:
    task = Task("t", 1, 8, constraints=PodConstraints(claims=("data",)))
    request = JobRequest("ns", "j", "u", RESOURCE, [task])
    there = {"berth.c.fact.claim.ns.data": encode(ClaimSeen("ns", "data"))}
    refusal = Refusal("no-claim", form=FORM)
    assert not found(facts(1), request, refusal)
    planner = Planner(facts(1) | there, [], Settings())
    assert planner.could_place(request, refusal) == ""
    assert planner.count == {"not judged: a claim that is there": 1}
