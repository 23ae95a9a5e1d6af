"""Where pods are to be, by what Berth has decided."""

from dataclasses import dataclass

import msgspec
import pytest

from berth.schemas.columns import pack
from berth.schemas.facts import MembersSeen, OutcomeSeen, RankFailure
from berth.schemas.fault_facts import BackupPod
from berth.schemas.placement import ClaimVolume, Run, placement_of
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus
from berth.services.gateway.extender.places import Place, Pods, bind_error

PLACEMENT = placement_of(["n1", "n2"], [(0, 1), (2, 3)], [Run(2, 2)], resource="r")
STATUS = JobStatus("ns", "job", "j1", "placed", 1, 1, attempt=1, placement=PLACEMENT)
RECOVERY = RecoveryStatus(1, "pod", "grace", "fault", "c", [0], [], 1, attempt=1, open=[0])
BOUND = OutcomeSeen("ns", "job", "j1", 1, "bound", bound=2)


def members(*uids: str, job: str = "job", uid: str = "j1", hold: str = "") -> MembersSeen:
    return MembersSeen("ns", job, uid, rank=pack(range(len(uids)), 4), pods=list(uids), pod_uids=list(uids), hold=hold)


@dataclass
class Case:
    """A pod, what is known of it, and the answer."""

    status: JobStatus | None = STATUS
    outcome: OutcomeSeen | None = None
    pod: str = "p0"

    def place(self) -> Place:
        pods = Pods()
        pods.take_members(members("p0", "p1", "p2"))
        if self.outcome is not None:
            pods.take_outcome(self.outcome)
        rank = pods.rank_of("ns", self.pod)
        assert rank is not None
        return pods.place_of(rank, self.status)


def waiting(**fields: object) -> JobStatus:
    return msgspec.structs.replace(STATUS, placement=None, phase="waiting", **fields)


def test_a_placed_pod_is_on_the_node_of_its_rank() -> None:
    for pod, node in (("p0", "n1"), ("p1", "n2")):
        place = Case(pod=pod).place()
        assert place == Place(node, f"Berth has placed this pod on node {node}", is_bound=False, result="placed")
        assert Case(pod=pod, outcome=BOUND).place()[2:] == (True, "bound")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case(None), "waits: Berth has not decided yet"),
        (Case(msgspec.structs.replace(STATUS, uid="j0")), "waits: Berth has not decided yet"),
        (Case(waiting(sentence="no node has 8 free chips")), "waits: no node has 8 free chips"),
        (Case(waiting()), "waits: Berth has not decided yet"),
        (Case(msgspec.structs.replace(STATUS, phase="rejected", sentence="chips is 3")), "rejected: chips is 3"),
        (Case(msgspec.structs.replace(STATUS, phase="ending")), "job job is ending"),
        (Case(msgspec.structs.replace(STATUS, phase="cancelled", placement=None)), "job job is cancelled"),
        (Case(pod="p2"), "waits: rank 2 of job job has no place"),
        (
            Case(
                msgspec.structs.replace(
                    STATUS,
                    recovery=msgspec.structs.replace(RECOVERY, unplaced=[0], refusal="no spare node"),
                )
            ),
            "waits: no spare node",
        ),
        (
            Case(
                msgspec.structs.replace(
                    STATUS, placement=msgspec.structs.replace(PLACEMENT, claims=[ClaimVolume("c", "cu", 1)])
                )
            ),
            "waits: the binder of Berth binds its claims and then this pod, on node n1",
        ),
    ],
)
def test_a_pod_without_a_place_waits_with_the_reason(case: Case, reason: str) -> None:
    place = case.place()
    assert (place.node, place.reason, place.is_bound, place.result) == ("", reason, False, "waiting")
    assert bind_error(place, "n1") == reason


@pytest.mark.parametrize(
    "outcome",
    [
        msgspec.structs.replace(BOUND, uid="j0"),
        msgspec.structs.replace(BOUND, attempt=2),
        msgspec.structs.replace(BOUND, state="failed"),
        msgspec.structs.replace(BOUND, failures=[RankFailure(0, "gone")]),
        msgspec.structs.replace(BOUND, open=[0]),
    ],
)
def test_a_pod_is_not_bound_by_another_outcome(outcome: OutcomeSeen) -> None:
    place = Case(outcome=outcome).place()
    assert (place.node, place.is_bound) == ("n1", False)
    assert bind_error(place, "n1") == "the binder of Berth has not bound this pod to node n1 yet"


def test_a_rank_that_recovers_is_not_bound_until_that_is_over() -> None:
    status = msgspec.structs.replace(STATUS, phase="running", recovery=RECOVERY)
    assert not Case(status, BOUND).place().is_bound
    assert Case(status, BOUND, pod="p1").place().is_bound
    assert Case(msgspec.structs.replace(status, attempt=2), msgspec.structs.replace(BOUND, attempt=2)).place().is_bound


def test_bound_claims_do_not_hold_a_bound_pod_back() -> None:
    placement = msgspec.structs.replace(PLACEMENT, claims=[ClaimVolume("c", "cu", 0)])
    assert Case(msgspec.structs.replace(STATUS, placement=placement), BOUND).place().is_bound


def test_a_binding_is_confirmed_on_the_node_alone() -> None:
    place = Case(outcome=BOUND).place()
    assert bind_error(place, "n1") == ""
    assert bind_error(place, "n2") == "node is n2, expected n1: Berth has placed this pod on node n1"


def test_a_pod_of_another_namespace_has_no_rank() -> None:
    pods = Pods()
    pods.take_members(members("p0"))
    assert pods.rank_of("other", "p0") is None
    assert pods.rank_of("ns", "p1") is None


def test_a_pod_that_is_held_says_why() -> None:
    pods = Pods()
    pods.take_members(members("p0", uid="", hold="pod p0 waits for scheduling gate g"))
    rank = pods.rank_of("ns", "p0")
    assert rank is not None
    assert pods.place_of(rank, None).reason == "waits: pod p0 waits for scheduling gate g"


def test_a_pod_that_is_replaced_has_no_rank() -> None:
    pods = Pods()
    pods.take_members(members("p0", "p1"))
    pods.take_outcome(BOUND)
    pods.take_members(members("p2", "p1"))
    assert pods.rank_of("ns", "p0") is None
    assert pods.rank_of("ns", "p2") is not None
    pods.take_members(members())
    assert len(pods) == 0
    assert pods._outcomes == {}


def test_a_pod_that_goes_to_another_job_stays_there_when_the_first_forgets_it() -> None:
    pods = Pods()
    pods.take_members(members("p0", job="a"))
    pods.take_members(members("p0", job="b"))
    pods.take_members(members(job="a"))
    rank = pods.rank_of("ns", "p0")
    assert rank is not None
    assert rank.job == "b"


def test_a_backup_pod_is_left_to_the_binder() -> None:
    pods = Pods()
    pods.take_members(msgspec.structs.replace(members("p0"), backups=[BackupPod(0, "b0", "b0", is_bound=False)]))
    rank = pods.rank_of("ns", "b0")
    assert rank is not None
    assert pods.place_of(rank, STATUS).reason.startswith("waits: the binder of Berth binds this backup pod")


def test_damaged_members_leave_the_earlier_ones() -> None:
    pods = Pods()
    pods.take_members(members("p0"))
    with pytest.raises(ValueError):  # noqa: PT011  # that of zip
        pods.take_members(msgspec.structs.replace(members("p0", "p1"), pod_uids=["p5"]))
    assert pods.rank_of("ns", "p0") is not None


def test_outcomes_of_jobs_without_pods_are_not_kept() -> None:
    pods = Pods()
    pods.take_outcome(BOUND)
    assert pods._outcomes == {}
