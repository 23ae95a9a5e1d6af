"""The planner that tries everything finds what is there, and says what it does not judge."""

import msgspec
import pytest

from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.holding import Holding
from berth.schemas.columns import pack, pack_names
from berth.schemas.constraints import Taint, Toleration
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSeen, NodeClass, NodesSeen
from berth.schemas.fault_facts import DrainSeen, FlappingChip
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement, Run
from berth.schemas.refusal import BlockLack, NodeReason, ReasonCount, Refusal
from tests.sim.planner import Planner

RESOURCE = "huawei.com/Ascend910"
NAMES = ("n0", "n1")


def facts(kind: NodeClass | None = None, chips: int = 0xFF, **health: bytes) -> dict[str, bytes]:
    rows = len(NAMES)
    nodes = NodesSeen(
        "d", pack_names(NAMES), [kind or NodeClass("p", RESOURCE, {"zone": "a"})], pack([0] * rows, 2),
        pack([chips] * rows, 8), pack([chips.bit_count()] * rows, 2), pack([8_000] * rows, 4), pack([8_192] * rows, 4),
        leaves=["leaf"], leaf_index=pack([1, 0], 4),
    )  # fmt: skip
    columns = dict.fromkeys(("unhealthy", "recovering", "network_unhealthy"), pack([0] * rows, 8))
    columns |= {"level": pack([0] * rows, 1), "network_known": pack([1] * rows, 1)} | health
    seen = HealthSeen(
        "d",
        pack_names(NAMES),
        columns["unhealthy"],
        columns["recovering"],
        columns["network_unhealthy"],
        columns["level"],
        columns["network_known"],
        withheld=columns.get("withheld", b""),
    )
    return {"berth.c.fact.node.d": encode(nodes), "berth.c.fact.health.d": encode(seen)}


def a_request(chips: int, pods: int = 1, task: Task | None = None, **fields: object) -> JobRequest:
    task = msgspec.structs.replace(task or Task("t", 1, 0, 1_000, 1_024), chips=chips, replicas=pods)
    return msgspec.structs.replace(JobRequest("ns", "j", "u", RESOURCE, [task]), **fields)


def held(node: str, chips: tuple[int, ...]) -> Holding:
    run = Run(1, len(chips), 1_000, 1_024)
    placement = Placement(pack_names([node]), pack([0], 4), [run], bytes(chips), RESOURCE)
    return Holding("ns", "other", "o", 1, placement, 1, 0)


def found(
    request: JobRequest, known: dict[str, bytes], *holdings: Holding, form: str = "module910bx8", code: str = "no-room"
) -> bool:
    planner = Planner(known, holdings, Settings())
    place = planner.could_place(request, Refusal(code, form=form))  # type: ignore[arg-type]  # one of the codes
    assert planner.count == {"judged": 1, f"judged: {code}": 1}
    return bool(place)


@pytest.mark.parametrize(
    ("chips", "pods", "taken", "fits"),
    [(8, 2, (), True), (8, 3, (), False), (5, 2, (0, 1, 2), True), (5, 2, (0, 1, 2, 3), False), (4, 3, (0,), True)],
)
def test_a_gang_fits_where_all_its_pods_do(chips: int, pods: int, taken: tuple[int, ...], *, fits: bool) -> None:
    holdings = [held("n0", taken)] if taken else []
    assert found(a_request(chips, pods), facts(), *holdings) is fits


@pytest.mark.parametrize(
    ("form", "mask", "chips", "pods", "fits"),
    [
        ("module910x8", 0b0111_0111, 4, 1, False),
        ("module910x8", 0b0111_1111, 4, 2, True),
        ("module910x8", 0b0111_1111, 4, 3, False),
        ("module910x8", 0xFF, 8, 2, True),
        ("module910a3x16", 0b0111_0111, 4, 2, True),
        ("module910a3x16", 0b0111_0111, 6, 1, False),
        ("module910a3x16", 0b0001_0001, 1, 2, True),
        ("module910bx8", 0b0111_0111, 6, 2, True),
        ("half910x4", 0b1111, 4, 2, True),
        ("card910x2", 0b11, 1, 4, True),
        ("card910x2", 0b111, 1, 1, False),
        ("310-card", 0b0111_0011, 3, 2, True),
        ("310-card", 0b0011_0011, 3, 1, False),
        ("310p-duo-card", 0b0101, 2, 1, False),
        ("310p-duo-card", 0b0110_0011, 2, 2, True),
        ("310-chip", 0b0101_0101, 4, 2, True),
        ("chip4-node8", 0b0111_0111, 4, 1, False),
        ("chip4-node8", 0b1111_0111, 4, 2, True),
        ("chip4-node8", 0b0111_0111, 6, 1, True),
        ("chip4-node8", 0b0111_0111, 3, 4, True),
        ("chip4-node8", 0b0011_0011, 3, 1, False),
    ],
)
def test_chips_go_together_as_the_form_says(form: str, mask: int, chips: int, pods: int, *, fits: bool) -> None:
    assert found(a_request(chips, pods), facts(chips=mask), form=form) is fits


def test_nodes_of_duo_cards_have_a_label() -> None:
    duo = NodeClass("p", RESOURCE, {"infer-card-type": "card-300i-duo"})
    for form, mask, chips, fits in [
        ("310p-duo-chip", 0b0101, 2, True),
        ("310p-duo-chip-distributed", 0b0101, 2, False),
        ("310p-duo-chip-distributed", 0b0111, 3, True),
        ("310p-duo-chip-distributed", 0b1111, 3, True),
        ("310p-duo-chip-distributed", 0b0011, 3, False),
    ]:
        assert found(a_request(chips), facts(duo, mask), form=form) is fits
        assert not found(a_request(chips), facts(chips=mask), form=form)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": NodeClass("p", RESOURCE, cordoned=True)},
        {"kind": NodeClass("p", RESOURCE, ready=False)},
        {"kind": NodeClass("p", "huawei.com/npu")},
        {"kind": NodeClass("p", RESOURCE, taints=[Taint("k")])},
        {"unhealthy": pack([1, 1], 8)},
        {"recovering": pack([1, 1], 8)},
        {"withheld": pack([1, 1], 8)},
        {"level": pack([2, 1], 1)},
    ],
)
def test_a_node_that_takes_no_work_is_no_place(wrong: dict[str, object]) -> None:
    assert found(a_request(8), facts())
    assert not found(a_request(8), facts(**wrong))  # type: ignore[arg-type]  # one of the fields


def test_a_drain_of_a_node_or_its_leaf_takes_it_away() -> None:
    for kind, name, left in (("node", "n1", 1), ("leaf", "leaf", 1), ("node", "leaf", 2)):
        drain = DrainSeen(kind, name, since_ms=1)  # type: ignore[arg-type]  # one of the kinds
        known = facts() | {"berth.c.fact.drain.x.y": encode(drain)}
        assert found(a_request(8, left), known)
        assert not found(a_request(8, left + 1), known)
        over = msgspec.structs.replace(drain, gone=True)
        assert found(a_request(8, 2), known | {"berth.c.fact.drain.x.y": encode(over)})


def test_places_that_are_held_for_a_gang_that_restarts_are_taken() -> None:
    run = Run(1, 8, 1_000, 1_024)
    placement = Placement(pack_names(NAMES), pack([0, 1], 4), [run, run], bytes([*range(8), *range(8)]), RESOURCE)
    for ranks, fits in (([0], True), ([0, 1], False)):
        kept = Held("ns", "other", "o", 1, placement, ranks, until_ms=9)
        planner = Planner(facts(), [], Settings(), held=[kept])
        place = planner.could_place(a_request(8), Refusal("no-room", form="module910bx8"))
        assert bool(place) is fits


def test_network_faults_count_for_jobs_of_several_pods_alone() -> None:
    known = facts(network_unhealthy=pack([1, 1], 8))
    assert found(a_request(8), known)
    assert not found(a_request(8, 2), known)
    assert found(a_request(7, 2), known)
    assert not found(a_request(8, annotations={"berth/gang-pods": "2"}), known), "a late pod of a gang of two"


def test_a_flapping_chip_is_no_place() -> None:
    none = pack([0, 0], 8)
    flapping = [FlappingChip(0, 3, 2, 1), FlappingChip(1, 3, 2, 1)]
    health = HealthSeen("d", pack_names(NAMES), none, none, none, pack([0, 0], 1), pack([1, 1], 1), flapping=flapping)
    assert not found(a_request(8), facts() | {"berth.c.fact.health.d": encode(health)})


def test_health_of_a_former_domain_does_not_count() -> None:
    moved = {"berth.c.fact.health.e" if ".health." in subject else subject: data for subject, data in facts().items()}
    health = decode(moved["berth.c.fact.health.e"], HealthSeen)
    moved["berth.c.fact.health.e"] = encode(msgspec.structs.replace(health, domain="e"))
    assert not found(a_request(8), moved)
    assert found(a_request(8), moved | facts())


def test_selectors_taints_and_other_resources_are_seen() -> None:
    assert found(a_request(1, node_selector={"zone": "a"}), facts())
    assert not found(a_request(1, node_selector={"zone": "b"}), facts())
    tainted = facts(NodeClass("p", RESOURCE, taints=[Taint("k", "v")]))
    assert found(a_request(1, task=Task("t", 1, 1, tolerations=[Toleration("k", value="v")])), tainted)
    assert not found(a_request(1, task=Task("t", 1, 1, tolerations=[Toleration("k", value="w")])), tainted)
    assert found(a_request(1, 2, Task("t", 1, 1, 8_000)), facts())
    assert not found(a_request(1, 3, Task("t", 1, 1, 8_000)), facts())


def test_a_job_that_is_larger_than_the_cluster_does_not_fit_an_empty_one() -> None:
    holdings = [held(name, tuple(range(8))) for name in NAMES]
    assert found(a_request(8, 2), facts(), *holdings, code="larger-than-cluster")
    assert not found(a_request(8, 3), facts(), *holdings, code="larger-than-cluster")


@pytest.mark.parametrize(
    ("request_", "refusal", "policy", "why"),
    [
        (a_request(1), Refusal("bind-failed"), "skip", "refusal bind-failed"),
        (a_request(1), Refusal("no-room", missing_shards=[1]), "skip", "a scorer is missing"),
        (a_request(0), Refusal("no-room"), "easy", "pods without chips, queue policy easy"),
        (
            a_request(1, annotations={"huawei.com/affinity-config": "level1=1"}),
            Refusal("no-room"),
            "skip",
            "levels and services",
        ),
        (a_request(1, labels={"app": "a", "jobID": "1"}), Refusal("no-room"), "skip", "levels and services"),
        (
            a_request(8, annotations={"sp-block": "8"}),
            Refusal("no-blocks", blocks=BlockLack("home", 1, 0, 1)),
            "skip",
            "places before a fault",
        ),
        (
            a_request(0, labels={"tor-affinity": "normal-schema"}),
            Refusal("no-leaf"),
            "skip",
            "some pods of a group without chips",
        ),
        (a_request(1), Refusal("no-room", form="910-new"), "skip", "form 910-new"),
        (
            a_request(1),
            Refusal("no-room", counts=[ReasonCount(NodeReason.ANTI_AFFINITY, 1)]),
            "skip",
            "constraints",
        ),
        (a_request(1, 7), Refusal("no-room"), "skip", "too many pods or nodes"),
    ],
)
def test_what_is_not_judged_is_counted(request_: JobRequest, refusal: Refusal, policy: str, why: str) -> None:
    planner = Planner(facts(), [], Settings(queue_policy=policy))
    assert planner.could_place(request_, refusal) == ""
    assert planner.count == {f"not judged: {why}": 1}


def test_only_the_first_of_a_strict_queue_is_judged() -> None:
    planner = Planner(facts(), [], Settings(queue_policy="fifo"))
    refusal = Refusal("no-room", form="module910bx8")
    assert planner.could_place(a_request(8), refusal, is_first=False) == ""
    assert planner.could_place(a_request(8), refusal)
    assert planner.count["judged"] == planner.count["not judged: not the first in a strict queue"] == 1
