"""What the inventory reports beside facts: odd requests, PodGroups that wait, errors, and pods that nobody saw."""

import pytest
from structlog.testing import capture_logs

from berth.formats.kubernetes.events import Involved
from berth.runtime.instruments import Instruments
from berth.schemas.facts import MembersSeen, Owner, PodPhase
from berth.schemas.intake import JobRequest, Task
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.effects import PatchPodGroup
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.podgroups.notices import AdmissionReasons
from berth.services.inventory.publishing.api_tasks import ApiTasks
from berth.services.inventory.publishing.event_reporter import EventReporter
from berth.services.inventory.publishing.warnings import FAULT_LABEL_IGNORED, FORM_ASSUMED, RequestWarnings
from tests.support.api_tasks import is_busy
from tests.support.clock import ManualClock
from tests.support.fake_kube import FakeKube
from tests.support.gang_world import GangWorld, a_group, members, requested
from tests.support.gang_world import a_pod as a_waiting_pod
from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted

POLICY = "huawei.com/schedule_policy"
MADE = "2026-11-20T08:00:00Z"
MADE_MS = 1_795_161_600_000


def a_request(name: str, policy: str = "chip9-node9", chips: int = 8) -> JobRequest:
    return JobRequest(
        namespace="ns",
        name=name,
        uid=f"uid-{name}",
        resource="huawei.com/Ascend910",
        tasks=[Task("w", 1, chips, 1000, 1024)],
        annotations={POLICY: policy},
        node_selector={"accelerator-type": "module-910b-8"},
    )


def seen(job: str, *, podgroup: str = "", owner: Owner | None = None) -> MembersSeen:
    return MembersSeen("ns", job, "u", pods=["p"], pod_uids=["uid-p"], podgroup=podgroup, owner=owner or Owner())


def uid_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if name else ""


@pytest.mark.parametrize(
    ("told", "kind", "name", "uid"),
    [
        (seen("a", podgroup="pg"), "PodGroup", "pg", "ns/pg"),
        (seen("a", owner=Owner("Job", "j", "uid-j")), "Job", "j", "uid-j"),
        (seen("a"), "Pod", "p", "uid-p"),
    ],
)
def test_the_form_that_is_assumed_is_told_of_the_group_else_its_owner_else_its_pod(
    told: MembersSeen, kind: str, name: str, uid: str
) -> None:
    warnings = RequestWarnings()
    warnings.judge(a_request("a"), told, uid_of, {})
    ((key, sentence),) = warnings.sentences(FORM_ASSUMED).items()
    about = warnings.involved(key)
    assert about is not None
    assert (about.kind, about.namespace, about.name, about.uid) == (kind, "ns", name, uid)
    assert sentence == (
        f"product form module910bx8 is assumed, because annotation {POLICY} has the unknown value 'chip9-node9', "
        "and node selector accelerator-type is module-910b-8"
    )


def test_labels_for_faults_that_contradict_one_another_are_told() -> None:
    warnings = RequestWarnings()
    request = a_request("a", "chip8-node8")
    request.labels["fault-scheduling"] = "grace|force"
    warnings.judge(request, seen("a", podgroup="pg"), uid_of, {})
    (sentence,) = warnings.sentences(FAULT_LABEL_IGNORED).values()
    assert sentence == (
        "labels.fault-scheduling is 'grace|force': expected one of grace, force, off, external-grace, external-force,"
        " the same for all pods and the PodGroup; it counts as absent when a fault occurs"
    )
    request.labels["fault-scheduling"] = "grace"
    warnings.judge(request, seen("a", podgroup="pg"), uid_of, {})
    assert warnings.sentences(FAULT_LABEL_IGNORED) == {}


def test_many_requests_of_one_owner_are_one_remark_until_the_last_is_over() -> None:
    warnings = RequestWarnings()
    owner = Owner("Job", "j", "uid-j")
    for name in ("a", "b"):
        warnings.judge(a_request(name), seen(name, owner=owner), uid_of, {})
    assert len(warnings.sentences(FORM_ASSUMED)) == 1
    warnings.drop("ns", "a")
    assert len(warnings.sentences(FORM_ASSUMED)) == 1
    warnings.drop("ns", "b")
    warnings.drop("ns", "b")
    assert warnings.sentences(FORM_ASSUMED) == {}


def test_nothing_is_said_of_known_policies_of_pods_without_chips_and_of_requests_that_are_refused() -> None:
    warnings = RequestWarnings()
    warnings.judge(a_request("known", "chip8-node8"), seen("known"), uid_of, {})
    warnings.judge(a_request("plain", chips=0), seen("plain"), uid_of, {})
    unknown = a_request("refused")
    unknown.node_selector["accelerator-type"] = "nothing-known"
    warnings.judge(unknown, seen("refused"), uid_of, {})
    warnings.judge(a_request("lost"), None, uid_of, {})
    assert warnings.sentences(FORM_ASSUMED) == {}


def patch_of(*messages: str) -> PatchPodGroup:
    conditions = [{"type": "Unschedulable", "message": message} for message in messages]
    return PatchPodGroup("ns", "pg", "uid-pg", "1", {"status": {"conditions": conditions}})


def test_a_group_that_waits_without_pods_is_told_of_until_it_is_let_in() -> None:
    notes = AdmissionReasons()
    notes.see(patch_of("no room"), has_pods=False)
    assert notes.sentences == {"uid-pg": "no room"}
    about = notes.involved("uid-pg")
    assert about is not None
    assert (about.kind, about.name, about.uid) == ("PodGroup", "pg", "uid-pg")
    notes.see(PatchPodGroup("ns", "pg", "uid-pg", "2", {"status": {"running": 1}}), has_pods=False)
    assert notes.sentences == {"uid-pg": "no room"}
    notes.see(patch_of(), has_pods=False)
    assert notes.sentences == {}
    notes.see(patch_of("no room"), has_pods=True)
    assert notes.sentences == {}
    notes.see(patch_of("no room"), has_pods=False)
    notes.drop("ns", "pg")
    assert notes.sentences == {}


def test_what_is_new_within_the_pause_is_told_after_it() -> None:
    clock = ManualClock()
    config = InventoryConfig(event_apart_s=60)
    instruments = Instruments.make(InventoryMetrics)
    api_tasks = ApiTasks(config, instruments)
    event_reporter = EventReporter(FakeKube(clock=clock), clock, config, api_tasks, instruments, reason="NodeInvalid")

    def involved(name: str) -> Involved:
        return Involved(kind="Node", name=name, uid=name)

    event_reporter.report({"n1": "one thing"}, involved)
    assert event_reporter.next_due_ms() is None
    event_reporter.report({"n1": "another thing"}, involved)
    assert event_reporter.next_due_ms() == clock.now_ms() + 60_000
    clock.advance(60)
    event_reporter.report({"n1": "another thing"}, involved)
    assert event_reporter.next_due_ms() is None
    assert is_busy(api_tasks)
    with capture_logs() as logs:
        for number in range(1_000):
            event_reporter.report({"n1": f"thing {number}"}, involved)
    assert 0 < len(logs) <= 100, "whoever may write the object does not decide how long the log is"


def test_pods_that_were_bound_and_deleted_between_two_words_give_their_chips_back() -> None:
    world = World()
    world.pods.note_job(accepted("j", "u", 1))
    world.put(a_pod("a", job=("j", "u", 1, 0)))
    world.pods.remove("uid-a")
    assert world.said() == [("j", "u", 1, {0: ("n1", PodPhase.GONE, 0)})]
    assert world.said() == []


def test_a_request_whose_bound_pods_nobody_ever_saw_is_taken_back() -> None:
    world = requested(2)
    (name,) = world.requests
    world.status(name, "placed")
    world.outcome(name)
    world.status(name, "bound")
    for index in range(2):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle()
    assert world.withdrawn == []
    world.settle(after_s=30)
    assert world.withdrawn == [(name, world.requests[name].uid, "its pods are gone")]


def test_nothing_is_said_of_a_new_group_before_it_is_judged() -> None:
    world = GangWorld()
    world.now_ms = MADE_MS + 1_000
    world.gangs.set_group(a_group("pg", phase="Pending", created=MADE))
    world.pods(*members(2))
    world.settle()
    assert world.members == {}
    assert world.gangs.next_due_ms() == MADE_MS + 5_000
    world.settle(after_s=4)
    assert [told.hold for told in world.members.values()] == ["PodGroup is Pending: not admitted yet"]


def test_pods_take_over_ranks_when_the_next_attempt_is_placed_at_once() -> None:
    world = requested(2)
    (name,) = world.requests
    world.status(name, "placed")
    world.pods(*members(1, node="n1"))
    world.outcome(name, "failed")
    world.settle()
    world.status(name, "ending")
    world.settle()
    world.gangs.drop_pod("uid-p-0")
    world.pods(a_waiting_pod("p-8", group="pg"))
    world.settle()
    assert world.standing(name)[0] == "p-0"
    world.status(name, "placed", attempt=2)  # it never waited
    world.settle()
    assert world.standing(name) == {0: "p-8", 1: "p-1"}
    assert len(world.published) == 1
