"""PodGroups where queues are in force: what is told of them, and how their phase follows the dispatcher."""

import msgspec
import pytest

from berth.core.queues.tree import tree_of
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.policies import PriorityClass
from berth.schemas.ledger import Admission, Settings
from berth.schemas.queues.facts import WaitingGroup
from berth.schemas.queues.queue import CHIP, Queue
from berth.schemas.refusal import QueueRefusal
from berth.schemas.units import unix_ms
from berth.services.inventory.podgroups.collection import Groups
from tests.support.gang_world import BASE, CHIPS, CREATED, a_group, a_pod
from tests.unit.services.inventory.podgroups.test_collection import GroupWorld, pending

ENABLED = "huawei.com/schedule_enable_dequeue"
FULL = QueueRefusal(
    "over-capability", "a", dimension=CHIPS, held=16 * CHIP, limit=16 * CHIP, asked=8 * CHIP, is_admission=True
)
FULL_TEXT = f"gangs of queue a need at least 16 of 16 {CHIPS}; the job asks for 8"


class QueueWorld(GroupWorld):
    """A cell whose dispatcher applies queues, and decides what a test wants."""

    def __init__(self, *queues: Queue, chips: int = 0, settings: Settings | None = None) -> None:
        super().__init__(chips=chips)
        self.groups.set_queues(tree_of(queues or [Queue("a")]))
        self.groups.set_settings(settings or Settings(queues=2))
        self.told: dict[str, WaitingGroup | None] = {}

    @property
    def groups(self) -> Groups:
        return self.gangs.groups

    def hear(self) -> dict[str, WaitingGroup | None]:
        """What the dispatcher knows of PodGroups."""
        told = self.groups.queues.told
        self.told.update((name, asks[1] if asks is not None else None) for (_, name), asks in told.items())
        told.clear()
        return self.told

    def decision(self, name: str, refusal: QueueRefusal | None = None) -> Admission:
        asks = self.hear()[name]
        assert asks is not None, f"{name} needs no decision"
        uid = self.shown[name].metadata.uid
        return Admission("ns", name, uid, asks.queue, asks.minimum, asks.pods, refusal)

    def decide(self, *names: str, refusal: QueueRefusal | None = None) -> None:
        self.groups.decide([self.decision(name, refusal) for name in names])
        self.run()


def test_a_group_waits_for_a_decision_and_for_nothing_else() -> None:
    world = QueueWorld(chips=16)
    world.show(pending(queue="a"))
    world.run()
    assert (world.phase(), world.shown["pg"].status.conditions) == ("Pending", None)
    world.free(0)
    world.decide("pg")
    assert world.phase() == "Inqueue"


def test_what_it_asks_for_is_told() -> None:
    world = QueueWorld()
    world.gangs.set_priority_classes([PriorityClass(metadata=Meta(name="high"), value=9, preemption_policy="Never")])
    resources = {CHIPS: "8", "cpu": "4", "memory": "2Gi", "pods": "4"}
    world.show(
        a_group("pg", phase="Pending", queue="a", resources=resources, priority_class="high"),
        a_group("bare", phase="Pending", least=2),
    )
    world.run()
    asks = world.hear()["pg"]
    assert asks == WaitingGroup(
        "a",
        {CHIPS: 8 * CHIP, "cpu": 4_000, "memory": 2_048},
        is_declared=True,
        pods=4,
        priority=9,
        may_displace=False,
        created_ms=unix_ms(CREATED),
        job="podgroup.pg",
    )
    bare = world.told["bare"]
    assert bare is not None
    assert (bare.queue, bare.minimum, bare.is_declared, bare.pods) == ("default", {}, False, 2)


def test_without_declared_resources_the_first_pods_of_its_minimum_are_asked_for() -> None:
    world = QueueWorld()
    world.show(a_group("pg", phase="Pending", queue="a", least=2))
    world.pods(*(a_pod(f"p-{number}", group="pg", chips=4) for number in range(3)))
    world.run()
    asks = world.hear()["pg"]
    assert asks is not None
    assert (asks.minimum[CHIPS], asks.is_declared, asks.pods) == (8 * CHIP, False, 2)


def test_why_it_waits_is_its_condition_with_the_queue_and_numbers() -> None:
    world = QueueWorld(Queue("a"), Queue("shut", state="Closed"))
    world.show(pending(queue="a"), pending("shut", queue="shut"))
    world.run()
    world.decide("pg", refusal=FULL)
    world.decide("shut", refusal=QueueRefusal("queue-closed", "shut"))
    assert (world.phase(), world.condition()) == ("Pending", ("Unschedulable", "JobEnqueueFailed", FULL_TEXT))
    assert world.condition("shut")[2] == "queue shut is Closed"
    world.decide("pg")
    assert (world.phase(), world.shown["pg"].status.conditions) == ("Inqueue", [])


def test_one_that_is_admitted_goes_back_when_the_dispatcher_takes_it_back() -> None:
    world = QueueWorld()
    world.show(pending(queue="a"), pending("other", queue="a"))
    world.run()
    world.decide("pg", "other")
    world.groups.set_queues(tree_of([Queue("a", state="Closing")]))
    world.decide("pg", refusal=QueueRefusal("queue-closed", "a"))
    assert (world.phase(), world.condition()[2]) == ("Pending", "queue a is Closing")
    assert world.phase("other") == "Inqueue"
    world.decide("pg")
    assert world.phase() == "Inqueue"


def test_a_decision_on_what_it_asked_for_before_does_not_count() -> None:
    world = QueueWorld(Queue("a"), Queue("b"))
    world.show(pending(queue="a"))
    world.run()
    old = world.decision("pg")
    world.show(pending(queue="b", version="50"))
    world.run()
    world.groups.decide([old])
    world.run()
    assert world.phase() == "Pending"
    world.decide("pg")
    assert world.phase() == "Inqueue"


def test_a_decision_on_a_group_of_the_same_name_before_does_not_count() -> None:
    world = QueueWorld()
    world.show(pending(queue="a"))
    world.run()
    old = world.decision("pg")
    world.gangs.drop_group("ns", "pg")
    world.show(pending(queue="a", uid="another"))
    world.run()
    world.groups.decide([old])
    world.run()
    assert world.phase() == "Pending"


def test_one_whose_pods_are_requested_is_told_of_with_the_request_until_they_have_places() -> None:
    world = QueueWorld()
    world.show(a_group("pg", least=1, queue="a", phase="Pending"))
    world.run()
    world.decide("pg")
    world.pods(a_pod("p-0", group="pg"))
    world.run()
    world.verdict(BASE)
    world.status(BASE, "waiting")
    world.run()
    asks = world.hear()["pg"]
    assert asks is not None
    assert asks.job == BASE
    world.status(BASE, "placed")
    world.run()
    assert (world.phase(), world.hear()["pg"]) == ("Inqueue", None)


def test_one_whose_pods_are_requested_goes_back_when_it_is_taken_back() -> None:
    world = QueueWorld()
    world.show(a_group("pg", least=1, queue="a", phase="Pending"))
    world.run()
    world.decide("pg")
    world.pods(a_pod("p-0", group="pg"))
    world.run()
    world.verdict(BASE)
    world.status(BASE, "waiting")
    world.run()
    world.decide("pg", refusal=QueueRefusal("queue-closed", "a"))
    assert world.phase() == "Pending"
    world.decide("pg")
    assert world.phase() == "Inqueue"


def test_one_that_is_gone_is_told_of_no_more() -> None:
    world = QueueWorld()
    world.show(pending(queue="a"))
    world.run()
    assert world.hear()["pg"] is not None
    world.gangs.drop_group("ns", "pg")
    assert world.hear()["pg"] is None


def test_it_keeps_its_turn_however_long_it_waits_unless_it_asks_to_go_back() -> None:
    world = QueueWorld()
    world.show(pending("waits", queue="a"), pending("asks", queue="a", annotations={ENABLED: "on"}))
    world.run()
    world.decide("waits", "asks")
    world.run(after_s=300)
    assert (world.phase("waits"), world.phase("asks")) == ("Inqueue", "Pending")
    assert world.condition("asks")[2] == "it could not start for 300 s and released its claim"
    assert world.hear()["asks"] is None, "its claim does not count meanwhile"
    world.run(after_s=60)
    asks = world.hear()["asks"]
    assert asks is not None
    assert (world.phase("asks"), asks.is_admitted) == ("Pending", False)
    world.decide("asks")
    assert world.phase("asks") == "Inqueue"


def test_where_the_dispatcher_applies_no_queues_groups_are_admitted_by_what_is_free() -> None:
    world = QueueWorld(chips=8, settings=Settings(queues=0))
    world.show(pending(queue="a"))
    world.run()
    assert world.phase() == "Inqueue"
    assert world.hear()["pg"] is None


def test_nobody_is_admitted_before_it_is_known_who_decides() -> None:
    world = GroupWorld(chips=16)
    world.gangs.groups.set_queues(tree_of([Queue("a")]))
    world.show(pending(queue="a"))
    world.run()
    assert world.phase() == "Pending"
    world.gangs.groups.set_settings(Settings(queues=0))
    world.run()
    assert world.phase() == "Inqueue"


def test_without_queues_groups_are_admitted_by_what_is_free_again() -> None:
    world = QueueWorld(chips=8)
    world.show(pending(queue="a"))
    world.run()
    assert world.hear()["pg"] is not None
    world.groups.set_queues(None)
    world.run()
    assert world.phase() == "Inqueue"
    assert world.hear()["pg"] is None


def test_groups_that_were_admitted_before_queues_were_in_force_stay_and_are_told_of_as_such() -> None:
    world = QueueWorld()
    world.show(a_group("pg", queue="a"))
    world.run()
    asks = world.hear()["pg"]
    assert asks is not None
    assert (world.phase(), asks.is_admitted) == ("Inqueue", True)


def test_admissions_are_written_in_the_order_of_the_decisions() -> None:
    world = QueueWorld()
    world.show(*(pending(name, queue="a") for name in ("a", "b", "c")))
    world.run()
    world.groups.decide([world.decision(name) for name in ("c", "a", "b")])
    world.settle()
    assert [patch.name for patch in world.patches] == ["c", "a", "b"]


def test_one_goes_back_also_if_the_first_patch_meets_another_writer() -> None:
    world = QueueWorld()
    world.show(pending(queue="a"))
    world.run()
    world.decide("pg")
    world.groups.decide([world.decision("pg", FULL)])
    world.settle()
    assert [patch.patch["status"]["phase"] for patch in world.patches] == ["Pending"]  # type: ignore[index]  # JSON
    world.patches.clear()
    other = world.shown["pg"]
    meta = msgspec.structs.replace(other.metadata, resource_version="999", labels={"any": "thing"})
    world.show(msgspec.structs.replace(other, metadata=meta))
    world.run()
    assert world.phase() == "Pending"


@pytest.mark.parametrize("value", ["a lot", "-1"])
def test_one_whose_minimum_cannot_be_read_waits_and_is_not_told_of(value: str) -> None:
    world = QueueWorld()
    world.show(a_group("pg", phase="Pending", queue="a", resources={CHIPS: value}))
    world.run()
    assert (world.phase(), world.condition()[1]) == ("Pending", "JobValidateFailed")
    assert world.hear()["pg"] is None
