"""Queues limit what their jobs hold: whom they refuse, what that says, what it is charged, and what wakes."""

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import Task
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeCondition
from berth.schemas.queues.queue import CHIP, CPU, ROOT, Queue
from tests.support.cells import a_node
from tests.support.queue_cells import NPU, Ordered, Shared, limits

POLICIES = ("skip", "fifo", "easy", "conservative")
each_policy = pytest.mark.parametrize("policy", POLICIES)


@each_policy
def test_a_queue_holds_no_more_than_its_capability_and_other_queues_go_on(policy: str) -> None:
    cell = Shared(4, Queue("a", capability=limits(16)), Queue("b"), policy=policy, shards=(1, 3, 8))
    for number in range(3):
        cell.submitted(f"a{number}", "a")
    cell.submitted("other", "b")
    assert cell.round() == [("a0", ""), ("a1", ""), ("a2", "queues"), ("other", "")]
    assert cell.text("a2") == f"queue a holds 16 of 16 {NPU}; the job asks for 8"
    cell.ended("other")
    cell.round()
    assert not cell.seat.scheduler.has_work, "its queue has given nothing back"
    cell.ended("a1")
    assert cell.round() == []  # the end is recorded, which wakes
    assert cell.round() == [("a2", "")]


def test_a_limit_of_a_queue_above_binds_and_is_named() -> None:
    cell = Shared(
        4, Queue("lab", capability=limits(16)), Queue("a", parent="lab"), Queue("b", parent="lab"), shards=(1, 3)
    )
    cell.submitted("a0", "a")
    cell.submitted("b0", "b")
    cell.submitted("b1", "b")
    assert cell.round() == [("a0", ""), ("b0", ""), ("b1", "queues")]
    assert cell.text("b1") == f"queue lab holds 16 of 16 {NPU}; the job asks for 8"
    cell.ended("a0")
    cell.round()
    assert cell.round() == [("b1", "")], "a sibling gave back what the queue above holds"


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        ("nowhere", "queue nowhere does not exist"),
        ("lab", "queue lab has child queues; jobs must name one of them"),
        ("shut", "queue shut is not open"),
        ("theirs", "queue theirs is not for jobs of namespace team"),
        ("lost", "queue lost is not valid"),
        ("small", f"the job asks for 8 {NPU}, queue small may never hold more than 4"),
    ],
)
def test_a_queue_that_lets_nobody_in_says_why_and_shuts_no_other(queue: str, text: str) -> None:
    cell = Shared(
        4,
        Queue("lab"),
        Queue("a", parent="lab"),
        Queue("shut", state="Closed"),
        Queue("theirs", namespaces=["others"]),
        Queue("lost", parent="gone"),
        Queue("small", capability=limits(4)),
    )
    cell.submitted("job", queue)
    cell.submitted("well", "a")
    assert cell.round() == [("job", "queues"), ("well", "")]
    assert cell.text("job") == text


@pytest.mark.parametrize(
    "change",
    [
        Queue("a", capability=limits(16)),
        Queue("a"),
        Queue("lab", capability=limits(32)),
        Queue("b", parent="lab"),
    ],
    ids=("raised", "without", "above", "sibling"),
)
def test_a_change_of_the_tree_that_makes_room_wakes(change: Queue) -> None:
    lab = Queue("lab", capability=limits(8 if change.name == "lab" else 16))
    guarantee = limits(8) if change.name == "b" else {}
    sibling = Queue("b", parent="lab", guarantee=guarantee)
    own = Queue("a", parent="lab", capability={} if change.name != "a" else limits(8))
    cell = Shared(4, lab, own, sibling)
    cell.submitted("a0", "a")
    cell.submitted("a1", "a")
    assert cell.round() == [("a0", ""), ("a1", "queues")]
    assert not cell.seat.scheduler.has_work
    parent = change.parent or ("" if change.name == "lab" else "lab")
    cell.queue(msgspec.structs.replace(change, parent=parent))
    assert cell.round() == [("a1", "")]


def test_a_change_that_helps_nobody_here_wakes_nobody() -> None:
    cell = Shared(4, Queue("a", capability=limits(8)), Queue("b", capability=limits(8)))
    cell.submitted("a0", "a")
    cell.submitted("a1", "a")
    assert cell.round() == [("a0", ""), ("a1", "queues")]
    cell.queue(Queue("b", capability=limits(16)))
    assert not cell.seat.scheduler.has_work


def test_a_job_of_a_queue_with_children_wakes_when_the_last_valid_one_is_not_valid_any_more() -> None:
    cell = Shared(4, Queue("lab", capability=limits(8)), Queue("a", parent="lab"))
    cell.submitted("a0", "lab")
    assert cell.round() == [("a0", "queues")]
    cell.queue(Queue("a", parent="lab", wrong=["spec.type: is 3, expected a text"]))
    assert cell.round() == [("a0", "")]


def test_a_job_of_a_queue_that_is_not_valid_wakes_when_its_parent_comes() -> None:
    cell = Shared(4, Queue("a", parent="lab"))
    cell.submitted("a0", "a")
    assert cell.round() == [("a0", "queues")]
    cell.queue(Queue("lab"))
    assert cell.round() == [("a0", "")]


def test_without_an_amount_anywhere_queues_do_nothing() -> None:
    cell = Shared(4, Queue(ROOT), Queue("default"))
    cell.submitted("a0", "nowhere")
    assert cell.round() == [("a0", "")]


def test_a_gang_is_charged_to_the_queue_of_its_record_until_it_is_given_back() -> None:
    cell = Shared(4, Queue("lab"), Queue("a", parent="lab"))
    cell.submitted("a0", "a", tasks=[Task("worker", 2, 8, 4_000, 1_024)])
    cell.round()
    assert cell.holding("a0").queue == "a"
    assert (cell.held("a"), cell.held("lab"), cell.held(ROOT)) == (16 * CHIP,) * 3
    assert cell.held("a", CPU) > 0
    cell.ended("a0")
    cell.round()
    assert cell.held(ROOT) == 0


def test_what_a_queue_that_is_gone_held_is_charged_to_the_root() -> None:
    cell = Shared(4, Queue(ROOT, capability=limits(16)), Queue("a"))
    cell.submitted("a0", "a")
    cell.round()
    cell.queue(Queue("a"), gone=True)
    assert cell.held(ROOT) == 8 * CHIP


def test_gangs_that_were_placed_before_queues_are_charged_to_default() -> None:
    cell = Shared(4, Queue("default", capability=limits(8)))
    cell.begin(Settings())
    cell.submitted("early", "a")
    assert cell.round() == [("early", "")]
    cell.begin(Settings(queues=1))
    cell.submitted("late", "default")
    assert cell.round() == [("late", "queues")]


def test_a_limit_that_is_cut_evicts_nobody_and_holds_back_what_comes() -> None:
    cell = Shared(4, Queue("a", capability=limits(16)))
    cell.submitted("a0", "a")
    cell.submitted("a1", "a")
    cell.round()
    cell.queue(Queue("a", capability=limits(8)))
    cell.submitted("a2", "a")
    assert cell.round() == [("a2", "queues")]
    assert cell.text("a2") == f"queue a holds 16 of 8 {NPU}; the job asks for 8"


def test_the_limit_of_a_namespace_in_a_queue_binds_that_namespace_alone() -> None:
    cell = Shared(4, Queue("a", per_namespace=limits(8)))
    cell.submitted("a0", "a")
    cell.submitted("a1", "a")
    cell.submitted("b0", "a", namespace="others")
    assert cell.round() == [("a0", ""), ("a1", "queues"), ("b0", "")]
    assert cell.text("a1") == f"namespace team in queue a holds 8 of 8 {NPU}; the job asks for 8"


def test_gangs_without_chips_are_limited_by_cpu() -> None:
    cell = Shared(4, Queue("a", capability={CPU: 8_000}))
    cell.submitted("a0", "a", tasks=[Task("worker", 1, 0, 8_000, 1)], resource="")
    cell.submitted("a1", "a", tasks=[Task("worker", 1, 0, 1_000, 1)], resource="")
    assert cell.round() == [("a0", ""), ("a1", "queues")]
    assert cell.text("a1") == "queue a holds 8 of 8 cpu; the job asks for 1"


def test_queues_take_turns_by_what_they_hold_of_their_entitlement() -> None:
    cell = Ordered(8, Queue("a", weight=3), Queue("b"))
    for number in range(6):
        cell.submitted(f"a{number}", "a")
    for number in range(3):
        cell.submitted(f"b{number}", "b")
    assert [name for name, _ in cell.round()] == ["a0", "b0", "a1", "a2", "a3", "b1", "a4", "a5", "b2"]


def test_the_queue_of_higher_priority_is_first_and_its_priority_counts_among_siblings_alone() -> None:
    cell = Ordered(4, Queue("lab"), Queue("a", parent="lab", priority=9), Queue("b", priority=1))
    cell.submitted("a0", "a")
    cell.submitted("b0", "b")
    assert cell.round() == [("b0", ""), ("a0", "")]


def test_a_round_takes_from_all_queues_before_one_is_through() -> None:
    cell = Ordered(8, Queue("a"), Queue("b"), round_gangs_max=4)
    for number in range(6):
        cell.submitted(f"a{number}", "a")
    cell.submitted("b0", "b")
    cell.submitted("b1", "b")
    assert cell.round() == [("a0", ""), ("b0", ""), ("a1", ""), ("b1", "")]


def test_jobs_of_queues_that_let_nobody_in_are_told_so_after_the_others() -> None:
    cell = Ordered(8, Queue("a"), Queue("lost", parent="gone"))
    cell.submitted("first", "lost")
    cell.submitted("second", "a")
    assert cell.round() == [("second", ""), ("first", "queues")]


def test_a_class_that_finds_no_room_sleeps_in_its_queue_alone_and_wakes_in_all() -> None:
    cell = Ordered(1, Queue("a"), Queue("b"))
    for name in ("a0", "a1", "b0"):
        cell.submitted(name, name[0])
    assert cell.round() == [("a0", ""), ("b0", "no-room"), ("a1", "no-room")]
    cell.ended("a0")
    cell.round()
    assert cell.round()[0] == ("a1", ""), "both hold nothing: by name"


def test_a_stream_of_small_borrowers_does_not_starve_a_gang_that_its_queue_is_entitled_to() -> None:
    cell = Ordered(2, Queue("a", deserved=limits(16)), Queue("b"))
    for number in range(4):
        cell.submitted(f"b{number}", "b", chips=4, run_ms=100)
    cell.round(1)
    cell.submitted("large", "a", tasks=[Task("worker", 2, 8)], run_ms=100)
    assert cell.round(2) == [("large", "no-room")]
    for number in range(4, 9):  # each comes when another one ends, and would run beyond the others' ends
        cell.submitted(f"b{number}", "b", chips=4, run_ms=100)
        cell.ended(f"b{number - 4}") if number < 8 else None
        cell.round(10 * number)
        cell.round(10 * number + 1)
    started = [one.name for one in cell.seat.state.fold.holdings.values()]
    assert started == ["large"]


@pytest.mark.parametrize("deserved", [0, 16])
def test_no_room_is_kept_for_a_gang_whose_queue_has_its_turn_later(deserved: int) -> None:
    cell = Ordered(3, Queue("a", deserved=limits(8)), Queue("b", deserved=limits(deserved)), queue_policy="easy")
    cell.submitted("running", "a")
    assert cell.round() == [("running", "")]
    cell.submitted("large", "a", replicas=3)
    assert cell.round() == [("large", "no-room")]
    cell.submitted("small", "b", run_ms=9_000)
    assert cell.round(6) == [("small", "" if deserved else "easy")], "b is below what it is entitled to, or not"


def test_a_borrower_that_ends_before_the_entitled_gang_could_start_goes_before_it() -> None:
    cell = Ordered(2, Queue("a", deserved=limits(16)), Queue("b"))
    cell.submitted("long", "b", run_ms=1_000)
    cell.round(1)
    cell.submitted("large", "a", tasks=[Task("worker", 2, 8)], run_ms=100)
    cell.submitted("short", "b", run_ms=500)
    cell.submitted("longer", "b", run_ms=5_000)
    assert cell.round(2) == [("large", "no-room"), ("short", ""), ("longer", "no-room")]


def test_a_gang_beyond_the_entitlement_of_its_queue_has_no_reservation() -> None:
    cell = Ordered(2, Queue("a", deserved=limits(8)), Queue("b"))
    cell.submitted("long", "b", run_ms=1_000)
    cell.round(1)
    cell.submitted("large", "a", tasks=[Task("worker", 2, 8)], run_ms=100)
    cell.submitted("longer", "b", run_ms=5_000)
    assert cell.round(2) == [("large", "no-room"), ("longer", "")]


def test_in_a_fifo_queue_nobody_passes_a_gang_that_is_refused_and_others_go_on() -> None:
    cell = Shared(2, Queue("a", is_fifo=True, capability=limits(16)), Queue("b"), shards=(1, 3))
    cell.submitted("first", "a")
    cell.round()
    cell.submitted("wide", "a", replicas=2)
    cell.submitted("small", "a", chips=1)
    cell.submitted("other", "b", chips=1)
    assert cell.round() == [("wide", "queues"), ("small", "queues"), ("other", "")]
    assert cell.text("small") == "waits behind team/wide, which is before it in its queue (dequeueStrategy fifo)"
    cell.submitted("late", "a", chips=1)
    assert cell.round() == [("late", "queues")]
    cell.queue(Queue("a", is_fifo=True))
    assert cell.round() == [("wide", "no-room")], "behind it they wait as before"
    cell.ended("first")
    cell.ended("other")
    cell.round()
    assert cell.round() == [("wide", ""), ("small", "no-room")], "its class sleeps"


def test_under_fifo_queues_limit_and_the_order_of_acceptance_stays() -> None:
    cell = Ordered(8, Queue("a"), Queue("b"), queue_policy="fifo")
    for name in ("a0", "a1", "b0", "b1"):
        cell.submitted(name, name[0])
    assert [name for name, _ in cell.round()] == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize(("queue", "held"), [("a", 8), ("", 0)])
def test_pods_of_another_scheduler_are_charged_to_the_queue_of_their_group_alone(queue: str, held: int) -> None:
    cell = Shared(2, Queue("a", capability=limits(8)), Queue("default", capability=limits(8)))
    pods = PodsSeen(
        "team",
        "other",
        "uid-other",
        0,
        pack([0], 4),
        pack_names(["n0"]),
        pack([0], 4),
        pack([PodPhase.RUNNING], 1),
        pack([0xFF], 8),
        resource=NPU,
        foreign=True,
        queue=queue,
    )
    cell.fact("pod.team.other", pods)
    cell.round()
    assert [one.foreign for one in cell.seat.state.fold.holdings.values()] == [True]
    assert (cell.held("a"), cell.held("default"), cell.held(ROOT)) == (held * CHIP, 0, held * CHIP)


@pytest.mark.parametrize("limited", ["queue", "namespace"])
def test_a_gang_that_its_queue_refuses_does_not_wake_its_class_which_finds_no_room(limited: str) -> None:
    cell = Shared(1, Queue("a", per_namespace=limits(0)), Queue("b"), policy="fifo", shards=(1, 3))
    cell.submitted("runs", "b")
    assert cell.round() == [("runs", "")]
    cell.submitted("shut", "nowhere" if limited == "queue" else "a")
    cell.submitted("full", "b")
    assert cell.round() == [("shut", "queues"), ("full", "no-room")]
    assert cell.seat.scheduler.open(6).opening is None


@each_policy
def test_a_gang_whose_queue_lets_it_in_is_told_what_it_waits_for_from_then_on(policy: str) -> None:
    cell = Shared(1, Queue("a", capability=limits(4)), Queue("b"), policy=policy, shards=(1, 3))
    cell.submitted("runs", "b")
    assert cell.round() == [("runs", "")]
    cell.submitted("late", "a")
    cell.submitted("full", "b")
    assert [one for one in cell.round() if one[0] == "late"] == [("late", "queues")]
    cell.queue(Queue("a"))
    assert [name for name, code in cell.round() if code not in ("queues", "")] == ["late"]


@pytest.mark.parametrize("way", ["a node comes", "a node recovers"])
def test_nodes_wake_who_waits_for_a_limit_that_rests_on_what_they_have(way: str) -> None:
    cell = Shared(3 if way == "a node comes" else 4, Queue("a", guarantee=limits(8)), Queue("b"), shards=(1, 3))
    if way == "a node recovers":
        cell.fact("health.leaf-3", pack_health("leaf-3", [NodeCondition("n3", unhealthy=0xFF)]))
    cell.submitted("wide", "b", replicas=3)
    assert cell.round() == [("wide", "queues")]
    assert cell.text("wide") == f"the job asks for 24 {NPU}, queue b may never hold more than 16"
    if way == "a node recovers":
        cell.fact("health.leaf-3", pack_health("leaf-3", [NodeCondition("n3")]))
    else:
        cell.fact("node.leaf-3", pack_nodes("leaf-3", [a_node("n3", leaf="3")]))
    assert cell.round() == [("wide", "")]
