"""State of the gang resolver: pods of gangs, and the requests made for parts of a gang.

Longer than 400 lines because the parts of a gang, their ranks and their pods are always read together.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from berth.core.explain.refusal_text import sentence, unplaceable, within
from berth.core.text import cause_of
from berth.formats.ascend.pod_annotations import ASCEND_REAL, ATTEMPT, MARKS, OPERATOR_NAME, PREDICATE_TIME, RANK_INDEX
from berth.formats.kubernetes.objects import Pod, PodGroupSpec
from berth.formats.kubernetes.pods import PodRequirements, PodRequirementsReader
from berth.formats.kubernetes.workloads.membership import Membership, membership, natural, task_order
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.formats.whole_numbers import whole_number
from berth.schemas.facts import JobSeen, OutcomeSeen, Owner
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus

OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected", "gone"})
"""Phases in which a request is over; ``gone``: the dispatcher has forgotten the name."""
RUNS: Final = frozenset({"placed", "bound", "running"})
"""Phases in which a request is placed."""
State: TypeAlias = Literal["open", "closed"]
NO_INDEX: Final = 1 << 30


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a gang.

    Attributes:
        pod: The last observed object.
        place: Its gang and its place in the gang.
        ask: Its resource request.
        is_bound: It has a node.
        is_live: It is neither terminating nor finished.
        gate: Scheduling gate that must be removed first; empty without one.
        is_stale: It has no node, but carries annotations of a decision: of an attempt that was rolled back, or copied.
    """

    pod: Pod
    place: Membership
    ask: PodRequirements
    is_bound: bool
    is_live: bool
    gate: str
    is_stale: bool

    @property
    def uid(self) -> str:
        """Uid of the pod."""
        return self.pod.metadata.uid

    @property
    def name(self) -> str:
        """Name of the pod."""
        return self.pod.metadata.name

    @property
    def waits(self) -> bool:
        """Whether it has no node and may be placed."""
        return self.is_live and not self.is_bound and not self.gate

    @property
    def wrong(self) -> str:
        """Why it cannot be requested, as the end of a sentence that begins with the pod; empty when it can."""
        return self.ask.wrong or self.place.wrong

    @property
    def has_rank(self) -> bool:
        """Whether the pod states its rank itself."""
        return RANK_INDEX in (self.pod.metadata.annotations or {})

    def order(self, tasks: dict[str, int]) -> tuple[object, ...]:
        """Sort key among the pods of the gang: task, index, name."""
        place = self.place
        index = place.rank if place.rank is not None else place.local
        return (
            task_order(place.task, tasks),
            place.child,
            NO_INDEX if index is None else index,
            natural(self.name),
            self.uid,
        )


def member_of(pod: Pod, asks: PodRequirementsReader) -> Member:
    """A pod as a member of its gang."""
    ask = asks.ask(pod.spec, pod.metadata)
    is_bound = bool(pod.spec.node_name)
    carries = not {ask.resource, PREDICATE_TIME, ASCEND_REAL, *MARKS}.isdisjoint(pod.metadata.annotations or {})
    return Member(
        pod=pod,
        place=membership(pod),
        ask=ask,
        is_bound=is_bound,
        is_live=pod.status.phase not in {"Succeeded", "Failed"} and pod.metadata.deletion_timestamp is None,
        gate=next((gate.name for gate in pod.spec.scheduling_gates or ()), ""),
        is_stale=carries and not is_bound,
    )


@dataclass(slots=True, eq=False)
class Slot:
    """A rank of a request and the pod that takes it.

    Attributes:
        task: Task of the pod.
        ask: Resource request of the pod; None when unknown after a restart.
        source: Origin of the pod's rank; a pod with the same origin may replace it. None when unknown after a restart.
        index: Rank in the whole gang; ``NO_INDEX`` for a pod without chips.
        pod: Name of the pod.
        uid: Its uid.
        needs_no_rank: The pod states its rank itself, or needs none.
        is_live: The pod is live.
        was_bound: The pod got a node while it had this rank.
        attempt: Attempt that bound it, by its annotation; 0 if it has none.
        is_stale: As :attr:`Member.is_stale`.
        by_operator: The Ascend operator created the pod.
    """

    task: str
    ask: PodRequirements | None
    source: str | None
    index: int
    pod: str
    uid: str
    needs_no_rank: bool
    is_live: bool = True
    was_bound: bool = False
    attempt: int = 0
    is_stale: bool = False
    by_operator: bool = False

    def fits(self, member: Member) -> bool:
        """Whether a pod may take the rank over."""
        known = self.source is None or self.source == member.place.source
        return known and self.task == member.place.task and self.ask == member.ask

    def take(self, member: Member) -> None:
        """Give the rank to a pod; the rank in the gang stays."""
        self.pod, self.uid = member.name, member.uid
        self.source = member.place.source
        self.was_bound, self.attempt = False, 0
        self.see(member)

    def see(self, member: Member | None) -> None:
        """Note the current state of the pod."""
        self.is_live = member is not None and member.is_live
        if member is None:
            return
        self.was_bound = self.was_bound or member.is_bound
        if member.is_bound:
            self.attempt = whole_number(member.pod.metadata.annotation(ATTEMPT)) or 0
        else:
            self.needs_no_rank = needs_no_rank(member)
        self.is_stale = member.is_stale
        self.by_operator = OPERATOR_NAME in (member.pod.metadata.labels or {})


def needs_no_rank(member: Member) -> bool:
    """Whether no rank is to be written on a pod: it states one, has no chips, or is alone."""
    return member.has_rank or not member.ask.chips or member.place.key.kind == "pod"


@dataclass(slots=True, eq=False)
class Part:
    """A request for some pods of a gang.

    Attributes:
        gang: The gang.
        name: Name of the request.
        uid: Its uid.
        slots: Its ranks, in order.
        is_first: It holds the gang's minimum.
        gang_pods: Pods with chips of the whole gang at the time of the request.
        minimum: Pods of the gang that had to start together at that time; 0 when unknown after a restart.
        state: ``closed`` when it is over and its pods are not requested again.
        hold: Why it is closed, when no other field says so.
    """

    gang: GangKey
    name: str
    uid: str
    slots: list[Slot]
    is_first: bool
    gang_pods: int
    minimum: int = 0
    since_seq: int = 0
    """Place in the queue of an earlier request that it takes; 0: its own."""
    is_lost: bool = False
    """It is for ranks that the gang had."""
    is_fragile: bool = False
    """It is for ranks that a running gang lacks."""
    accepted_seq: int = 0
    """Place in the queue of the request; 0 while unknown."""
    request: JobRequest | None = None
    published: bool = False
    state: State = "open"
    phase: str = ""
    """Phase of the job; empty while unknown."""
    attempt: int = 0
    sentence: str = ""
    code: str = ""
    """Code of the refusal for which it waits or was rejected."""
    unplaceable: str = ""
    """Task for whose pods it waits although no node would take one if nothing ran there; empty for none."""
    outcome: OutcomeSeen | None = None
    hold: str = ""
    recovering: frozenset[int] = frozenset()
    """Ranks that other pods may take while the request is placed: their attempt recovers from a fault."""
    restarts: bool = False
    """A fault ends the attempt, or has ended it, and the next one waits for the pods that the controller makes anew."""
    backups: dict[int, str] = field(default_factory=dict)
    """Backup pods (uid) of ranks: made beside the pod of the rank, which they take over from it."""
    unbound_since_ms: int | None = None
    """Since when a pod has no node although the binder has bound all; None while there is none."""
    gone_since_ms: int | None = None
    incomplete_since_ms: int | None = None

    @property
    def age_seq(self) -> int:
        """Its place in the queue; 0 while unknown."""
        return self.since_seq or self.accepted_seq

    @property
    def is_over(self) -> bool:
        """Whether the request is over."""
        return self.phase in OVER

    @property
    def is_refused(self) -> bool:
        """Whether it was rejected, and its pods are not requested again as they are."""
        return self.state == "closed" and self.phase == "rejected"

    @property
    def open_ranks(self) -> frozenset[int]:
        """Ranks that other pods may take: by the status, and as the binder has announced before it deleted pods."""
        outcome = self.outcome
        if outcome is None or outcome.attempt != self.attempt or self.phase not in {*RUNS, "ending"}:
            return self.recovering
        return self.recovering.union(outcome.open)

    @property
    def awaits_pods(self) -> bool:
        """Whether ranks that recover have no pod."""
        if self.phase not in RUNS:
            return False
        return any(rank < len(self.slots) and not self.slots[rank].is_live for rank in self.open_ranks)

    @property
    def lacking_since_ms(self) -> int | None:
        """Time since which pods of a request that is not over are missing; None when none are."""
        since_ms = self.gone_since_ms if self.gone_since_ms is not None else self.incomplete_since_ms
        return None if self.is_over or all(slot.is_live for slot in self.slots) else since_ms

    @property
    def is_placed(self) -> bool:
        """Whether it holds, or held, chips."""
        return self.phase not in {"", "waiting", "cancelled", "rejected", "gone"}

    @property
    def is_settled(self) -> bool:
        """Whether the binder has finished the placed attempt."""
        outcome = self.outcome
        return outcome is not None and outcome.state == "bound" and outcome.attempt >= self.attempt

    def failed_ranks(self) -> list[int]:
        """Ranks that the binder gave up while the other ranks run."""
        failures = self.outcome.failures if self.is_settled and self.outcome is not None else ()
        return [failure.rank for failure in failures if failure.rank < len(self.slots)]

    def note_job(self, seen: JobSeen) -> bool:
        """Note the verdict on the request; returns whether anything changed."""
        before = (self.phase, self.sentence, self.code, self.published)
        if seen.uid == self.uid:
            self.published = True
            self.accepted_seq = seen.accepted_seq or self.accepted_seq
            if seen.state == "tombstone":
                self.phase = "gone"
            elif seen.state == "rejected":
                self._reject(seen.refusal)
            if seen.request is not None:
                self.request = seen.request  # that is what counts
        elif seen.state == "rejected" and seen.request is not None and seen.request.uid == self.uid:
            self.phase = "failed"  # another job has the uid: the next request gets a new one
        elif seen.rejection is not None and seen.rejection.uid == self.uid:
            self._reject(seen.rejection.refusal)
        return before != (self.phase, self.sentence, self.code, self.published)

    def _reject(self, refusal: Refusal | None) -> None:
        self.phase = "rejected"
        self.code, self.sentence = (refusal.code, sentence(refusal)) if refusal is not None else ("", "")

    def note_status(self, status: JobStatus, *, names_others: bool = False) -> bool:
        """Note the status of the job; returns whether anything changed besides numbers of its sentence."""
        if status.uid != self.uid or self.phase == "gone":
            return False
        refusal = status.refusal
        words = status.sentence if names_others else within(status.sentence, refusal, status.namespace)
        after = (status.phase, status.attempt, words, refusal.code if refusal is not None else "")
        recovering, restarts = _recovering(status), _restarts(status)
        before = (self.phase, self.attempt, self.sentence, self.code, self.recovering, self.restarts)
        changed = (*after, recovering, restarts) != before
        if changed and words != self.sentence and cause_of(words) == cause_of(self.sentence):
            changed = (*after[:2], self.sentence, *after[3:], recovering, restarts) != before
        if status.attempt > self.attempt:
            for slot in self.slots:  # the earlier attempt was rolled back: new pods may take its ranks
                slot.was_bound = slot.was_bound and slot.is_live
        self.phase, self.attempt, self.sentence, self.code = after
        self.recovering, self.restarts = recovering, restarts
        self.unplaceable = unplaceable(refusal)
        self.published = True
        return changed

    def note_outcome(self, outcome: OutcomeSeen) -> bool:
        """Note the outcome of the binding; returns whether anything changed."""
        if outcome.uid != self.uid or outcome == self.outcome:
            return False
        self.outcome = outcome
        return True


def _recovering(status: JobStatus) -> frozenset[int]:
    """Ranks of a placed attempt that recover from a fault."""
    found = status.recovery
    if found is None or found.attempt != status.attempt or status.phase not in RUNS:
        return frozenset()
    return frozenset(found.open)


def _restarts(status: JobStatus) -> bool:
    """Whether a fault makes a job start anew."""
    found = status.recovery
    if found is None or found.scope != "job" or found.how == "mark":
        return False
    ends = status.phase == "ending" and found.attempt == status.attempt
    return ends or (status.phase == "waiting" and found.attempt == status.attempt - 1)


def is_past(key: GangKey) -> bool:
    """Whether a gang belongs to a PodGroup or Workload that was deleted or replaced."""
    return kinds().is_group(key.kind) and bool(key.uid)


@dataclass(slots=True, eq=False)
class Gang:
    """Pods that belong together, and the requests made for them.

    Attributes:
        key: Its identity.
        members: Its pods, by uid.
        parts: Its requests, by name.
        published_names: Names under which facts about its pods are published.
        replacements: Published facts about its new pods that wait for a place, by request; only those with ranks.
        previous_uids: Uid of the last request of a pod, by the pod's uid.
        ages: Place in the queue of pods (uid) whose request was dropped while it waited.
        age_seq: Place in the queue of its first request; 0 while unknown.
        largest: Pods that it had at most.
        fallen: Pods (uid) that failed of late: when, and whose place they had, by its task and source.
        latecomers: Pods of other gangs that name its PodGroup or controller: they were bound before they did.
        former_uid: Uid that its PodGroup had before it was made again without a controller; empty if it was not.
        former_tops: Top controllers of its pods at that time; empty if they had none.
        rejecting: Nodes whose kubelets have rejected pods of it, the newest last.
        moved: Gangs of pods (uid) that have left this one since it was last processed.
        failures: Number of requests that failed in a row.
        retry_at_ms: Earliest time of the next request.
        retry_reason: Why the last request failed; empty when unknown.
        podgroup_uid: Uid of the PodGroup or Workload that its key names; empty while it has none, or is unknown.
        look: Owner that is read for it; None when its pods name none.
        owner_uid: Uid that this owner must have; empty when the pods do not name it.
        group_owner: Controller of its PodGroup, also while that is away; None without one.
        check_ms: Time at which the owner is read again because pods are missing; None when none are.
        arrivals: Reads of the owner that had begun when a pod was first seen, by the pod's uid.
        group_spec: Spec of its PodGroup that was seen last.
        group_reads: Reads of the owner that had begun when that changed; -1 if it did not.
        starts_least: Not all of its pods find a place: of this start the minimum is requested first.
        is_succeeded: Its controller was created again with another uid, and that has pods.
        ungrouped: Why it has no PodGroup although it had one, as a sentence: what waits is withdrawn.
        ended: Why its owner is over, as a sentence: nothing new is requested, and what waits is withdrawn.
        finished: Why its owner makes no pods any more, as a sentence: what waits for pods of it is withdrawn.
        due_ms: Time at which the gang must be processed even if nothing changes; None for never.
        changed_ms: Time of the first change that was not processed; None when all were.
        whole_ms: Time at which it was last processed while complete; None when it was not complete.
    """

    key: GangKey
    members: dict[str, Member] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    published_names: dict[str, None] = field(default_factory=dict)
    replacements: dict[str, ReplacementsSeen] = field(default_factory=dict)
    previous_uids: dict[str, str] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    age_seq: int = 0
    largest: int = 0
    fallen: dict[str, tuple[int, str, str | None]] = field(default_factory=dict)
    latecomers: list[Member] = field(default_factory=list)
    former_uid: str = ""
    former_tops: frozenset[str] = frozenset()
    rejecting: dict[str, None] = field(default_factory=dict)
    moved: dict[str, GangKey] = field(default_factory=dict)
    failures: int = 0
    retry_at_ms: int = 0
    retry_reason: str = ""
    podgroup_uid: str = ""
    look: OwnerKey | None = None
    owner_uid: str = ""
    group_owner: Owner | None = None
    check_ms: int | None = None
    arrivals: dict[str, int] = field(default_factory=dict)
    group_spec: PodGroupSpec | None = None
    group_reads: int = -1
    starts_least: bool = False
    is_succeeded: bool = False
    ungrouped: str = ""
    ended: str = ""
    finished: str = ""
    due_ms: int | None = None
    changed_ms: int | None = None
    whole_ms: int | None = None

    @property
    def runners(self) -> list[Member]:
        """Live pods with a node, whichever gang they are in."""
        return [member for member in (*self.members.values(), *self.latecomers) if member.is_bound and member.is_live]

    def has_placed(self, uid: str) -> bool:
        """Whether a pod has a rank of a request that is placed and not over."""
        placed = (part for part in self.parts.values() if part.is_placed and not part.is_over)
        return any(slot.uid == uid for part in placed for slot in part.slots)

    def due(self, at_ms: int) -> None:
        """Process the gang again at that time at the latest."""
        self.due_ms = at_ms if self.due_ms is None else min(self.due_ms, at_ms)

    @property
    def is_past(self) -> bool:
        """Whether its PodGroup or Workload is gone or another: it keeps what is placed, and ends with it."""
        return is_past(self.key)

    @property
    def is_empty(self) -> bool:
        """Whether there is no state to keep."""
        return not (self.members or self.parts or self.published_names or self.replacements)
