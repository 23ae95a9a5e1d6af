import msgspec
import pytest

from berth.core.cluster.node_packing import pack_health, unpack_nodes
from berth.formats.ascend.report_error import NO_REPORT, STALE
from berth.formats.ascend.tor_config import Slot
from berth.formats.kubernetes.objects import Node
from berth.schemas.facts import NodeHealth, NodesSeen
from berth.schemas.nodes import NodeCondition
from berth.services.inventory.nodes.collection import Due, Nodes
from berth.services.inventory.nodes.free_chips import Unreported
from berth.services.inventory.nodes.uses import Use

PLACES = {"ip-a": Slot("sw1", 0), "ip-b": Slot("sw1", 1), "ip-c": Slot("sw2", 4)}


def node(name: str, *, address: str = "", chips: int = 8, cpu: str = "100", version: str = "1") -> Node:
    infos: dict[str, object] = {f"Ascend910-{chip}": {} for chip in range(chips)}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "resourceVersion": version,
                "annotations": {"baseDeviceInfos": msgspec.json.encode(infos).decode()} if chips else {},
            },
            "status": {
                "allocatable": {"cpu": cpu, "memory": "1Gi", **({"huawei.com/Ascend910": str(chips)} if chips else {})},
                "addresses": [{"type": "InternalIP", "address": address or f"ip-{name}"}],
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": version}],
            },
        },
        Node,
    )


def said(nodes: Nodes, at_ms: int = 1) -> dict[str, list[str]]:
    """Say what is due; names in each fact, with ``-`` before the domain of those that come first."""
    due = nodes.due(at_ms)
    found: dict[str, list[str]] = {}
    for mark, facts in (("-", due.leaving), ("", due.rest)):
        for fact in facts:
            found[mark + fact.domain] = [one.name for one in unpack_nodes(fact)]
            nodes.note_published(fact)
    return found


def test_nodes_are_said_once() -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("b")])
    assert said(nodes) == {"bucket-all": ["a", "b"]}
    assert said(nodes) == {}


def test_a_node_that_only_lives_on_says_nothing() -> None:
    nodes = Nodes()
    nodes.replace([node("a")])
    said(nodes)
    assert not nodes.put(node("a", version="2"))
    assert not nodes.is_changed
    assert nodes.due(2) == Due([], [])


def test_what_could_not_be_said_is_due_again() -> None:
    nodes = Nodes()
    nodes.replace([node("a")])
    assert len(nodes.due(1).rest) == 1
    assert len(nodes.due(2).rest) == 1


def test_a_node_leaves_its_old_domain_before_it_joins_another() -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("b"), node("c"), node("d")])
    said(nodes)
    nodes.place(PLACES)
    assert said(nodes) == {"-bucket-all": ["d"], "leaf-sw1": ["a", "b"], "leaf-sw2": ["c"]}
    assert said(nodes) == {}
    nodes.remove("c")
    assert said(nodes) == {"-leaf-sw2": []}
    assert said(nodes) == {}


def test_a_fact_names_the_nodes_that_leave_for_another_domain_and_not_those_that_are_gone() -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("b"), node("c"), node("d")])
    said(nodes)
    nodes.place(PLACES)
    nodes.remove("b")
    (fact,) = nodes.due(5).leaving
    assert (fact.domain, fact.moving) == ("bucket-all", ["a", "c"])
    assert said(nodes) == {"-bucket-all": ["d"], "leaf-sw1": ["a"], "leaf-sw2": ["c"]}
    assert said(nodes) == {}, "nothing more about those that have moved"
    nodes.put(node("d", cpu="3"))
    (fact,) = nodes.due(7).rest
    assert (fact.domain, fact.moving) == ("bucket-all", [])


def test_nodes_with_a_place_are_known_by_their_addresses() -> None:
    nodes = Nodes()
    nodes.replace([node("c"), node("a"), node("d")])
    assert nodes.placed() == {}
    nodes.place(PLACES)
    assert nodes.placed() == {"ip-c": "c", "ip-a": "a"}


def test_it_is_counted_when_places_change() -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("b")])
    count = nodes.place_revision
    nodes.put(node("a", cpu="3"))
    assert nodes.place_revision == count
    for change in (
        lambda: nodes.place(PLACES),
        lambda: nodes.put(node("c")),
        lambda: nodes.remove("a"),
        lambda: nodes.put(node("b", address="ip-x")),
        lambda: nodes.place(PLACES | {"ip-c": Slot("sw2", 1)}),
    ):
        change()
        assert nodes.place_revision > count
        count = nodes.place_revision
    nodes.place(dict(PLACES) | {"ip-c": Slot("sw2", 1)})
    assert nodes.place_revision == count


def test_nodes_with_pods_that_use_chips_are_busy_until_they_are_gone() -> None:
    nodes = Nodes()
    nodes.replace([node("b"), node("a")])
    for name in ("b", "a", "z"):
        nodes.use(None, Use(name, 2, 0, 0, counted=True))
    nodes.use(None, Use("c", 0, 5, 5, counted=False))
    assert nodes.busy() == [("a", "ip-a"), ("b", "ip-b")]
    nodes.use(Use("a", 2, 0, 0, counted=True), None)
    assert nodes.busy() == [("b", "ip-b")]


def test_two_nodes_with_one_address_have_no_place_and_are_used_all_the_same() -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("x", address="ip-a"), node("b")])
    nodes.place(PLACES)
    assert said(nodes) == {"bucket-all": ["a", "x"], "leaf-sw1": ["b"]}
    reasons = nodes.address_reasons()
    assert sorted(reasons) == ["a", "x"]
    assert reasons["a"].startswith("node a: status.addresses InternalIP is 'ip-a', as on x")
    nodes.remove("x")
    assert said(nodes) == {"-bucket-all": [], "leaf-sw1": ["a", "b"]}
    assert nodes.address_reasons() == {}


def test_cpu_and_memory_of_others_are_taken_off() -> None:
    nodes = Nodes()
    nodes.replace([node("a")])
    use = Use("a", 0, 30_000, 24, counted=False)
    nodes.use(None, use)
    nodes.use(None, Use("a", 8, 10_000, 100, counted=True))
    assert (nodes.free().chips, nodes.free().cpu_milli) == ({"huawei.com/Ascend910": 0}, 60_000)
    fact = nodes.due(1).rest[0]
    (found,) = unpack_nodes(fact)
    assert (found.cpu_milli, found.memory_mib) == (70_000, 1000)
    assert (found.cpu_others, found.memory_others) == (use.cpu_milli, use.memory_mib)
    nodes.note_published(fact)
    nodes.use(use, use._replace(cpu_milli=200_000))
    (found,) = unpack_nodes(nodes.due(2).rest[0])
    assert (found.cpu_milli, found.cpu_others) == (0, 100_000), "no more than the node gives"
    nodes.use(use._replace(cpu_milli=200_000), None)
    (found,) = unpack_nodes(nodes.due(3).rest[0])
    assert (found.cpu_milli, found.cpu_others, found.memory_others) == (100_000, 0, 0)


def test_a_restart_says_only_what_has_changed_meanwhile() -> None:
    first = Nodes()
    first.replace([node("a"), node("b"), node("c"), node("d")])
    first.place(PLACES)
    facts: list[NodesSeen] = first.due(1).rest

    again = Nodes()
    again.restore(facts)
    again.place(PLACES)
    again.replace([node("a"), node("b", cpu="7"), node("c"), node("d")])
    assert said(again, 5) == {"leaf-sw1": ["a", "b"]}


def test_nodes_that_others_hold_up_give_nothing_free() -> None:
    nodes = Nodes()
    cordoned = msgspec.convert(
        {
            "metadata": {"name": "b"},
            "spec": {"unschedulable": True},
            "status": {"allocatable": {"cpu": "5"}, "conditions": [{"type": "Ready", "status": "True"}]},
        },
        Node,
    )
    nodes.replace([node("a"), cordoned])
    assert nodes.free().cpu_milli == 100_000


def test_chips_that_come_late_are_noticed() -> None:
    nodes = Nodes()
    assert nodes.replace([node("a", chips=0), node("b")]) == {"a", "b"}
    assert nodes.mask("a") == 0
    assert nodes.mask("z") is None
    assert nodes.put(node("a"))
    assert nodes.replace([node("a")]) == {"b"}


CHIPS = "huawei.com/Ascend910"


def free_chips(*conditions: NodeCondition, held: int = 0, load: int = 0) -> int:
    """Free chips of two nodes of eight; pods on the first hold and ask for something."""
    nodes = Nodes()
    nodes.replace([node("a"), node("b")])
    if load:
        nodes.use(None, Use("a", load, 0, 0, counted=True))
    assert nodes.note_health(pack_health("bucket-all", conditions)) == bool(conditions)
    return nodes.free(lambda name: held if name == "a" else 0).chips[CHIPS]


@pytest.mark.parametrize(
    ("condition", "held", "load", "free"),
    [
        (NodeCondition("a", level=NodeHealth.NO_NEW_WORK), 0, 0, 8),
        (NodeCondition("a", level=NodeHealth.EVICT), 0, 0, 8),
        (NodeCondition("a", unhealthy=0b1, recovering=0b10), 0, 0, 8 + 6),
        (NodeCondition("a", unhealthy=0b1), 0b11, 2, 8 + 6),  # one of the two that are held is not well
        (NodeCondition("a", unhealthy=0xFF), 0xFF, 8, 8),
        (NodeCondition("a", unhealthy=0xFE), 0xFE, 7, 8 + 1),
        (NodeCondition("a", withheld=0b111), 0b11, 2, 8 + 5),  # two of the three are held, one nobody holds
        (NodeCondition("a", withheld=0b11), 0, 2, 8 + 6),  # those of a pod that does not say which it holds
        (NodeCondition("a", withheld=0b11), 0, 0, 8 + 6),
        (NodeCondition("a", withheld=0xFF), 0xFF, 8, 8),
    ],
)
def test_chips_that_take_no_new_work_are_not_free(condition: NodeCondition, held: int, load: int, free: int) -> None:
    assert free_chips(condition, held=held, load=load) == free


def test_what_bars_nothing_takes_nothing_from_what_is_free() -> None:
    nodes = Nodes()
    nodes.replace([node("a")])
    assert not nodes.note_health(pack_health("bucket-all", [NodeCondition("a", level=NodeHealth.SUB_HEALTHY)]))
    assert nodes.free().chips == {CHIPS: 8}


def test_nodes_that_take_no_new_work_give_no_cpu_and_all_again_once_they_are_well() -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("b")])
    bad = pack_health("bucket-all", [NodeCondition("b", level=NodeHealth.EVICT)], at_ms=1)
    assert nodes.note_health(bad)
    assert not nodes.note_health(msgspec.structs.replace(bad, at_ms=2))
    assert (nodes.free().cpu_milli, nodes.free().memory_mib) == (100_000, 1024)
    assert nodes.note_health(pack_health("bucket-all", [NodeCondition("b")]))
    assert nodes.free().cpu_milli == 200_000


def test_the_word_of_the_domain_that_a_node_is_in_counts() -> None:
    nodes = Nodes()
    nodes.replace([node("a")])
    nodes.note_health(pack_health("leaf-sw1", [NodeCondition("a", level=NodeHealth.EVICT)]))
    assert nodes.free().chips == {CHIPS: 8}
    nodes.place(PLACES)
    assert nodes.free().chips == {}


def test_shares_of_chips_that_are_not_well_are_not_free() -> None:
    nodes = Nodes()
    shared = node("a")
    labels = {"huawei.com/scheduler.chip1softsharedev.enable": "true"}
    allocatable = {**(shared.status.allocatable or {}), CHIPS: "800"}
    nodes.put(
        msgspec.structs.replace(
            shared,
            metadata=msgspec.structs.replace(shared.metadata, labels=labels),
            status=msgspec.structs.replace(shared.status, allocatable=allocatable),
        )
    )
    nodes.use(None, Use("a", 30, 0, 0, counted=True))
    assert nodes.free().chips == {CHIPS: 770}
    nodes.note_health(pack_health("bucket-all", [NodeCondition("a", unhealthy=0b1, withheld=0b10)]))
    assert nodes.free().chips == {CHIPS: 570}


@pytest.mark.parametrize(
    ("level", "reason", "lack"),
    [
        (NodeHealth.NO_NEW_WORK, "device plug-in: report is more than 10 min old (limit 10 min)", STALE),
        (NodeHealth.NO_NEW_WORK, "device plug-in: no report, ConfigMap x is missing", NO_REPORT),
        (NodeHealth.NO_NEW_WORK, "NodeD: node status is PreSeparate", ""),
        (NodeHealth.EVICT, "device plug-in: report is more than 10 min old (limit 10 min); NodeD: fire", ""),
    ],
)
def test_chips_of_nodes_without_a_recent_report_are_counted_apart(level: NodeHealth, reason: str, lack: str) -> None:
    nodes = Nodes()
    nodes.replace([node("a"), node("b")])
    nodes.use(None, Use("a", 3, 0, 0, counted=True))
    rows = [NodeCondition("a", level=level, reason=reason, unhealthy=0x80), NodeCondition("b")]
    assert nodes.note_health(pack_health("bucket-all", rows))
    found = nodes.free()
    assert found.chips == {CHIPS: 8}
    assert found.unreported == ({CHIPS: [Unreported(lack, ("a",), 4)]} if lack else {})
