"""Pods of gangs and the parts of a gang that were requested: what the gang resolver remembers."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from berth.formats.ascend.pod_annotations import ASCEND_REAL, OPERATOR_NAME, PREDICATE_TIME, RANK_INDEX
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pods import PodAsk, PodAsks
from berth.formats.kubernetes.workloads import GangKey, Membership, membership, natural, task_order
from berth.schemas.facts import JobSeen, OutcomeSeen
from berth.schemas.intake import JobRequest
from berth.schemas.status import JobStatus

OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected", "gone"})
"""Phases after which nothing more happens to a request; ``gone``: its name is forgotten."""
State: TypeAlias = Literal["open", "closed"]
NO_INDEX: Final = 1 << 30


@dataclass(slots=True, eq=False)
class Member:
    """A pod of a gang.

    Attributes:
        pod: The object as it was last seen.
        place: Its gang and its place in there.
        ask: What it asks for.
        is_bound: It has a node.
        is_live: It is neither terminating nor ended.
        gate: Condition that must be removed first; empty without one.
        is_stale: It has no node, but annotations of an attempt that was rolled back.
    """

    pod: Pod
    place: Membership
    ask: PodAsk
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
        """It has no node, and may have one."""
        return self.is_live and not self.is_bound and not self.gate

    @property
    def has_rank(self) -> bool:
        """Whether the pod itself names its rank."""
        return RANK_INDEX in (self.pod.metadata.annotations or {})

    def order(self, tasks: dict[str, int]) -> tuple[object, ...]:
        """Place among the pods of the gang: task, index, name."""
        place = self.place
        index = place.rank if place.rank is not None else place.local
        return (
            task_order(place.task, tasks),
            place.child,
            NO_INDEX if index is None else index,
            natural(self.name),
            self.uid,
        )


def member_of(pod: Pod, asks: PodAsks) -> Member:
    """A pod as a member of its gang."""
    annotations = pod.metadata.annotations or {}
    ask = asks.ask(pod.spec)
    is_bound = bool(pod.spec.node_name)
    ended = pod.status.phase in {"Succeeded", "Failed"}
    carries = ask.resource in annotations or PREDICATE_TIME in annotations or ASCEND_REAL in annotations
    return Member(
        pod=pod,
        place=membership(pod),
        ask=ask,
        is_bound=is_bound,
        is_live=not ended and pod.metadata.deletion_timestamp is None,
        gate=next((gate.name for gate in pod.spec.scheduling_gates or ()), ""),
        is_stale=carries and not is_bound,
    )


@dataclass(slots=True, eq=False)
class Slot:
    """A rank of a request and its pod.

    Attributes:
        task: Task of the pod.
        ask: What the pod asks for; None when it is not known any more.
        source: Where the pod's rank comes from; a pod with the same takes over. None when it is not known any more.
        index: Rank in the whole gang.
        pod: Name of the pod.
        uid: Its uid.
        tells_rank: The pod itself names its rank, or needs none.
        is_there: The pod is live.
        was_bound: The pod got a node while it stood here.
        is_stale: As :attr:`Member.is_stale`.
        by_operator: The pod was made by the Ascend operator.
    """

    task: str
    ask: PodAsk | None
    source: str | None
    index: int
    pod: str
    uid: str
    tells_rank: bool
    is_there: bool = True
    was_bound: bool = False
    is_stale: bool = False
    by_operator: bool = False

    def fits(self, member: Member) -> bool:
        """Whether a pod may take over."""
        known = self.source is None or self.source == member.place.source
        return known and self.task == member.place.task and self.ask == member.ask

    def take(self, member: Member) -> None:
        """Give the rank to a pod; it keeps the place's index."""
        self.pod, self.uid = member.name, member.uid
        self.source = member.place.source
        self.was_bound = False
        self.see(member)

    def see(self, member: Member | None) -> None:
        """Note how the pod is now."""
        self.is_there = member is not None and member.is_live
        if member is None:
            return
        self.was_bound = self.was_bound or member.is_bound
        self.is_stale = member.is_stale
        self.by_operator = OPERATOR_NAME in (member.pod.metadata.labels or {})
        if not member.is_bound:
            self.tells_rank = tells_rank(member)


def tells_rank(member: Member) -> bool:
    """Whether no rank is to be written on a pod: it has one, has no chips, or is alone."""
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
        gang_pods: Pods with chips of the whole gang when it was made.
        state: ``closed`` once it is over and its pods are not asked for again.
        hold: Why it is closed, where nothing else gives the reason.
    """

    gang: GangKey
    name: str
    uid: str
    slots: list[Slot]
    is_first: bool
    gang_pods: int
    request: JobRequest | None = None
    published: bool = False
    state: State = "open"
    phase: str = ""
    """Phase of the job; empty while none is known."""
    attempt: int = 0
    sentence: str = ""
    code: str = ""
    """Code of the refusal that it waits with, or was rejected with."""
    outcome: OutcomeSeen | None = None
    hold: str = ""
    gone_since_ms: int | None = None
    lacking_since_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to the request."""
        return self.phase in OVER

    @property
    def is_placed(self) -> bool:
        """Whether it has, or had, chips."""
        return self.phase not in {"", "waiting", "cancelled", "rejected", "gone"}

    @property
    def is_settled(self) -> bool:
        """Whether the binder has done what it could for the attempt that is placed."""
        outcome = self.outcome
        return outcome is not None and outcome.state == "bound" and outcome.attempt >= self.attempt

    def failed_ranks(self) -> list[int]:
        """Ranks that the binder gave up while the others run."""
        if not self.is_settled or self.outcome is None:
            return []
        return [failure.rank for failure in self.outcome.failures if failure.rank < len(self.slots)]

    def note_job(self, seen: JobSeen) -> bool:
        """Note the verdict on the request; whether it changed anything."""
        before = (self.phase, self.sentence, self.code, self.published)
        if seen.uid == self.uid:
            self.published = True
            if seen.state == "tombstone":
                self.phase = "gone"
            elif seen.state == "rejected":
                self.phase = "rejected"
                self.code = seen.refusal.code if seen.refusal is not None else ""
            if seen.request is not None and self.request is None:
                self.request = seen.request
        elif seen.state == "rejected" and seen.request is not None and seen.request.uid == self.uid:
            self.phase = "failed"  # another job has the uid: the next request has another
        elif seen.rejection is not None and seen.rejection.uid == self.uid:
            self.phase = "rejected"
            self.code = seen.rejection.refusal.code
        return before != (self.phase, self.sentence, self.code, self.published)

    def note_status(self, status: JobStatus) -> bool:
        """Note the status of the job; returns whether it changed anything."""
        if status.uid != self.uid or self.phase == "gone":
            return False
        refusal = status.refusal
        after = (status.phase, status.attempt, status.sentence, refusal.code if refusal is not None else "")
        changed = after != (self.phase, self.attempt, self.sentence, self.code)
        if status.attempt > self.attempt:
            for slot in self.slots:  # the attempt before was undone: pods that come may take over
                slot.was_bound = slot.was_bound and slot.is_there
        self.phase, self.attempt, self.sentence, self.code = after
        self.published = True
        return changed

    def note_outcome(self, outcome: OutcomeSeen) -> bool:
        """Note what the binder achieved; whether it changed anything."""
        if outcome.uid != self.uid or outcome == self.outcome:
            return False
        self.outcome = outcome
        return True


@dataclass(slots=True, eq=False)
class Gang:
    """Pods that belong together, and what was requested for them.

    Attributes:
        key: Its identity.
        members: Its pods, by uid.
        parts: Its requests, by name.
        published_names: Names under which facts of its pods are published.
        former: Uid of the last request of a pod, by the pod's uid.
        failures: Requests that failed one after another.
        retry_at_ms: Not before that time the next one.
        retry_because: Why the last one failed; empty when unknown.
        due_ms: When something may have to be done though nothing happens; None when not.
    """

    key: GangKey
    members: dict[str, Member] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    published_names: dict[str, None] = field(default_factory=dict)
    former: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    retry_at_ms: int = 0
    retry_because: str = ""
    due_ms: int | None = None

    def due(self, at_ms: int) -> None:
        """Come back at that time at the latest."""
        self.due_ms = at_ms if self.due_ms is None else min(self.due_ms, at_ms)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.members or self.parts or self.published_names)
