"""Whether what users were told and what the cell did go together. Pure: a history, and what was seen of the cell.

Every acknowledged submit is there at the end, placed, finished, cancelled or refused with a reason, and exactly once.
A submit without an answer is there once or not at all; one that was refused is not there. A request whose sequence a
user was told is stored under this sequence.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tests.chaos.operations import OPEN, Action, Operation

Fate = Literal["absent", "waiting", "placed", "finished", "failed", "cancelled", "refused", "restless"]
"""What became of a job. ``waiting``: without a reason. ``refused``: with one, for now or for good. ``restless``: on its
way between two of the others."""
_ACCOUNTED: Final = frozenset({"placed", "finished", "failed", "cancelled", "refused"})
_ALIVE: Final = frozenset({"placed", "waiting", "refused", "restless"})


class End(NamedTuple):
    """What became of a job, and why."""

    fate: Fate
    reason: str = ""


class Placing(NamedTuple):
    """A placement in the ledger.

    Attributes:
        places: Node and mask of chips of each rank.
    """

    job: str
    uid: str
    attempt: int
    places: tuple[tuple[str, int], ...] = ()


class LivePod(NamedTuple):
    """A pod that is bound and not over."""

    uid: str
    job_uid: str
    attempt: int
    rank: int
    node: str
    chips: int


class Request(NamedTuple):
    """A stored request."""

    action: Action
    job: str


@dataclass
class Evidence:
    """What was seen of a cell.

    Attributes:
        ends: What became of each job that is known at the end, by name.
        uids: Uids under which each name was accepted.
        withdrawn: Uids that were cancelled before the name was accepted under another one. The inventory withdraws a
            request when its PodGroup goes back to Pending, because its time to start is over, and makes it anew.
        placings: Everything that was ever placed, in order.
        looks: Live pods of the cluster, at several times.
        told: Violations that the cluster itself counts, such as chips that two pods were to get.
        requests: Requests that are stored at the end, by sequence.
        is_deleted_by_cancel: Whether a cancel deletes the object of a job, so that nothing is left of the job. On the
            bus a cancelled job keeps its status.
        events: How often each event of a job is stored, by its id.
    """

    ends: Mapping[str, End] = field(default_factory=dict)
    uids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    withdrawn: frozenset[str] = frozenset()
    placings: Sequence[Placing] = ()
    looks: Sequence[Sequence[LivePod]] = ()
    told: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[int, Request] = field(default_factory=dict)
    is_deleted_by_cancel: bool = False
    events: Mapping[str, int] = field(default_factory=dict)

    @property
    def lacking_events(self) -> list[str]:
        """Events that follow from placements, and are not stored."""
        wanted = {f"{one.uid}/0/0/accepted" for one in self.placings}
        wanted |= {f"{one.uid}/{one.attempt}/0/placed" for one in self.placings}
        return sorted(wanted - self.events.keys())


class Violation(NamedTuple):
    """Something that must not be.

    Attributes:
        kind: ``lost``, ``doubled``, ``ghost``, ``not settled``, ``not cancelled``, ``cancelled by nobody``, ``chip
            twice``, ``without record``, ``moved``, ``event lost``, ``event twice``, or a count of the cluster.
        what: The job or pod, and particulars.
    """

    kind: str
    what: str


@dataclass
class Verdict:
    """Result of a check.

    Attributes:
        acknowledged: Jobs of which a submit was acknowledged.
        sequences: Acknowledged operations of which the sequence was told.
        unknown: Jobs of which no submit was acknowledged and one may have had an effect.
        present: Those of them that are there.
        refused: Jobs of which every submit certainly failed.
        fates: Acknowledged jobs by what became of them.
        pods: Live pods that were seen and compared with the ledger.
        events: Events of jobs that are stored.
    """

    violations: list[Violation] = field(default_factory=list)
    acknowledged: int = 0
    sequences: int = 0
    unknown: int = 0
    present: int = 0
    refused: int = 0
    cancels: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    placings: int = 0
    pods: int = 0
    events: int = 0

    def count(self, *kinds: str) -> int:
        """Violations of some kinds."""
        return sum(1 for one in self.violations if one.kind in kinds)


def check(operations: Sequence[Operation], evidence: Evidence) -> Verdict:
    """Compare a history with what was seen."""
    verdict = Verdict()
    submits, cancels = _by_job(operations, "submit"), _by_job(operations, "cancel")
    unplaced = evidence.withdrawn - {one.uid for one in evidence.placings}
    for job in sorted(submits.keys() | evidence.ends.keys() | cancels.keys()):
        end = evidence.ends.get(job, End("absent"))
        is_deleted = evidence.is_deleted_by_cancel and any(one.outcome != "failed" for one in cancels.get(job, []))
        _check_submits(verdict, job, submits.get(job, []), cancels.get(job, []), end, may_be_absent=is_deleted)
        _check_cancels(verdict, job, submits.get(job, []), cancels.get(job, []), end)
        uids = evidence.uids.get(job, frozenset()) - unplaced
        _check_identity(verdict, job, submits.get(job, []), cancels.get(job, []), uids)
    _check_sequences(verdict, operations, evidence.requests)
    _check_placings(verdict, evidence)
    _check_looks(verdict, evidence)
    _check_events(verdict, evidence)
    for kind, count in evidence.told.items():
        if count:
            verdict.violations.append(Violation(kind, f"the cluster counts {count}"))
    return verdict


def _by_job(operations: Sequence[Operation], action: str) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for one in operations:
        if one.action == action:
            found[one.job].append(one)
    return found


def _check_submits(
    verdict: Verdict, job: str, submits: list[Operation], cancels: list[Operation], end: End, *, may_be_absent: bool
) -> None:
    outcomes = {one.outcome for one in submits}
    is_cancelled = any(one.outcome != "failed" for one in cancels)
    said = f"{job} is {end.fate}{f' ({end.reason})' if end.reason else ''}"
    if "ok" in outcomes:
        verdict.acknowledged += 1
        verdict.fates[end.fate] += 1
        if end.fate == "absent" and not may_be_absent:
            verdict.violations.append(Violation("lost", f"{job} was acknowledged and is not there"))
    elif "unknown" in outcomes:
        verdict.unknown += 1
        verdict.present += end.fate != "absent"
    else:
        verdict.refused += 1
        if end.fate != "absent":
            verdict.violations.append(Violation("ghost", f"{said}, and no submit of it can have had an effect"))
    if end.fate != "absent" and end.fate not in _ACCOUNTED:
        verdict.violations.append(Violation("not settled", said))
    if end.fate in {"refused", "failed"} and not end.reason:
        verdict.violations.append(Violation("not settled", f"{said} and nobody says why"))
    if end.fate == "cancelled" and not is_cancelled:
        verdict.violations.append(Violation("cancelled by nobody", said))


def _check_sequences(verdict: Verdict, operations: Sequence[Operation], requests: Mapping[int, Request]) -> None:
    """Each request whose sequence was told is there: nothing that a server acknowledged may go, or become another."""
    for one in operations:
        if one.outcome != "ok" or not one.sequence:
            continue
        verdict.sequences += 1
        stored = requests.get(one.sequence)
        if stored != (one.action, one.job):
            said = f"{stored.action} of {stored.job}" if stored is not None else "nothing"
            what = f"{one.action} of {one.job} was acknowledged as request {one.sequence}, where {said} is stored"
            verdict.violations.append(Violation("lost", what))


def _check_identity(
    verdict: Verdict, job: str, submits: list[Operation], cancels: list[Operation], uids: frozenset[str]
) -> None:
    """A job is accepted once; a submit without an answer may take effect again after the job was deleted."""
    late = sum(1 for one in submits if one.outcome == "unknown") if cancels else 0
    if len(uids) > 1 + late:
        verdict.violations.append(Violation("doubled", f"{job} was accepted as {', '.join(sorted(uids))}"))


def _check_cancels(verdict: Verdict, job: str, submits: list[Operation], cancels: list[Operation], end: End) -> None:
    """An acknowledged cancel that began when all submits were answered has ended the job.

    A submit without an answer may take effect after the cancel, so nothing follows from a cancel then.
    """
    is_open = any(one.outcome == "unknown" or one.ended_s == OPEN for one in submits)
    answered_s = max((one.ended_s for one in submits), default=0.0)
    for cancel in cancels:
        if cancel.outcome != "ok":
            continue
        verdict.cancels += 1
        if not is_open and cancel.began_s >= answered_s and end.fate in _ALIVE:
            verdict.violations.append(Violation("not cancelled", f"{job} is {end.fate} after an acknowledged cancel"))


def _check_placings(verdict: Verdict, evidence: Evidence) -> None:
    """Each attempt of a job is placed once, one after the other."""
    verdict.placings = len(evidence.placings)
    last: dict[str, int] = {}
    for one in evidence.placings:
        if one.attempt <= last.get(one.uid, 0):
            verdict.violations.append(
                Violation("doubled", f"{one.job} is placed as attempt {one.attempt} after {last[one.uid]}")
            )
        last[one.uid] = max(one.attempt, last.get(one.uid, 0))


def _check_events(verdict: Verdict, evidence: Evidence) -> None:
    """Each placement is an event for programs, and no event is stored twice."""
    verdict.events = len(evidence.events)
    verdict.violations += [Violation("event lost", f"{one} is not stored") for one in evidence.lacking_events]
    verdict.violations += [
        Violation("event twice", f"{one} is stored {count} times")
        for one, count in sorted(evidence.events.items())
        if count > 1
    ]


def _check_looks(verdict: Verdict, evidence: Evidence) -> None:
    records = {(one.uid, one.attempt): one for one in evidence.placings}
    seen: dict[str, LivePod] = {}
    owners: dict[tuple[str, int, int], str] = {}
    found: set[Violation] = set()
    for look in evidence.looks:
        found.update(_shared_chips(look))
        for pod in look:
            if seen.setdefault(pod.uid, pod) != pod:
                found.add(Violation("moved", f"pod {pod.uid} was {seen[pod.uid]} and is {pod}"))
            owner = owners.setdefault((pod.job_uid, pod.attempt, pod.rank), pod.uid)
            if owner != pod.uid:
                found.add(Violation("doubled", f"pods {owner} and {pod.uid} are both rank {pod.rank} of {pod.job_uid}"))
            found.update(_without_record(pod, records.get((pod.job_uid, pod.attempt))))
    verdict.pods = len(seen)
    verdict.violations += sorted(found)


def _shared_chips(look: Iterable[LivePod]) -> Iterable[Violation]:
    held: dict[str, int] = defaultdict(int)
    for pod in look:
        if shared := held[pod.node] & pod.chips:
            yield Violation("chip twice", f"pod {pod.uid} shares chips {shared:#x} of {pod.node}")
        held[pod.node] |= pod.chips


def _without_record(pod: LivePod, record: Placing | None) -> Iterable[Violation]:
    if record is None or pod.rank >= len(record.places):
        yield Violation("without record", f"pod {pod.uid} is rank {pod.rank} of {pod.job_uid}, attempt {pod.attempt}")
    elif record.places[pod.rank] != (pod.node, pod.chips):
        yield Violation("without record", f"{pod} has another place in the ledger: {record.places[pod.rank]}")
