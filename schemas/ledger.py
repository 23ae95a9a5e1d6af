"""Ledger: the decisions of Berth, append-only and in one total order."""

from itertools import pairwise
from typing import ClassVar, Final, Literal

import msgspec

from berth.schemas.envelope import LEDGER, DecodeError, Envelope, NewerVersionError, check_version, open_envelope
from berth.schemas.message import BASELINE, Message, Part
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import Amounts
from berth.schemas.recovery import HeldPlaces, Recovery, Reservation
from berth.schemas.refusal import QueueRefusal, Refusal
from berth.schemas.rules import StatedRule
from berth.schemas.units import Sequence, UnixMs


class Settings(Part, frozen=True):
    """Settings that decisions depend on. A change starts a new epoch.

    The defaults are in force without configuration, and wherever no cell is known yet. These are the settings
    ``decisions`` of the dispatcher, too.
    """

    reference_parity: bool = False
    """Every documented decision goes the reference's way; switches the two ``strict_`` settings off."""
    strict_job_shape: bool = True
    """910A: up to 8 chips in one pod, more means 8 a pod."""
    health_first: bool = False
    """A healthier node outranks a better affinity, for every product form."""
    round_gangs_max: int = 256
    """Gangs that one round decides at most."""
    round_bytes_max: int = 400_000
    """Bytes of placements in one record; a larger gang has a round of its own."""
    attempts_max: int = 5
    """Times a gang is placed when its pods cannot be bound; those that fail within a minute count once."""
    shard_retry_ms: int = 1_000
    """How long a gang refused while a shard was missing waits for the next try."""
    tombstone_after_ms: int = 600_000
    """How long a job that is over keeps its name in the facts."""
    strict_label_values: bool = True
    """A label with a value that it cannot have is refused; off, it counts as absent."""
    needs_health: bool = False
    """A node with chips accepts no work until its health is known. For clusters where ``health`` runs."""
    nslb_version: str = "1.0"
    """Switch affinity on a spine-leaf network. A single layer of leaves (``tor_level``) has a policy of its own."""
    shared_tor_num: int = 2
    """Switch affinity 2.0: most shared leaves that one job uses."""
    strict_product_support: bool = False
    """A job whose product, framework or use of chips its switch affinity does not support is refused instead of placed
    with a warning."""
    super_pod_size: int = 48
    """Nodes of a physical SuperPoD."""
    reserve_nodes: int = 2
    """Nodes of a physical SuperPoD that jobs leave to others as long as they find room elsewhere; below
    ``super_pod_size``."""
    resource_levels: str = ""
    """JSON text of ``resource-level-config``: the levels of each tree, and the node labels that name its groups."""
    queue_policy: str = "skip"
    """What becomes of gangs behind one that finds no room: they wait, may go before it, or may as long as that delays
    the oldest large gang (``easy``) or the oldest large gangs (``conservative``) by nothing."""
    reserve_chips: int = 64
    """Chips from which on a gang is large and gets a reservation."""
    reserve_depth: int = 16
    """Most reservations at a time under ``conservative``."""
    unknown_run_ms: int = 86_400_000
    """Run time that is assumed for a gang that declares none when no gang like it has run yet."""
    grace_over_ms: int = 900_000
    """Pods that are evicted for a fault and are still there after so long are deleted at once."""
    plan_before_delete: bool = True
    """Healthy pods leave only when there are places for those that leave; off under ``reference_parity``."""
    fault_wait_ms: int = 60_000
    """With ``plan_before_delete``: after so long without places those leave all the same that are sub-healthy, a job of
    which no pod is healthy, and what is drained."""
    escalate_block_ms: int = 3_000
    """How long a new pod waits for a place before the block of ranks around it leaves (Atlas 950)."""
    escalate_superpod_ms: int = 6_000
    """... before the logical SuperPoD, or the group of level 1, around it leaves."""
    escalate_job_ms: int = 12_000
    """... before the whole job restarts; with ``plan_before_delete`` once there are places."""
    not_ready_ms: int = 0
    """How long a node is not ready before its pods are faulty."""
    restarts_at_once: int = 16
    """Most jobs that restart as a whole at a time for one cause: faults of one kind in one domain."""
    restart_share_percent: int = 20
    """If more than ``restarts_at_once`` jobs would restart for faults of one kind that sources report of nodes, and
    they are more than so many percent of the running jobs, each of them waits for a second source or an approval."""
    hold_places_ms: int = 60_000
    """How long the healthy places of a job that starts anew as a whole stay held for it; 0 frees them at once. Off
    under ``reference_parity``."""
    fault_settle_ms: int = 200
    """Nodes below one leaf switch or in one SuperPoD that are gone or not ready, and several that a source reports as
    unhealthy, make pods faulty once no further one has followed for so long, or none is left; 0: at once."""
    waiting_jobs_max: int = 25_000
    """Most jobs that wait in one namespace, and of one program; a request beyond them is refused with ``too-many``."""
    waiting_pods_max: int = 1_000_000
    """Most pods of jobs that wait in one namespace, and of one program."""
    queues: int = 0
    """What queues do: 0 nothing, 1 they limit their jobs, 2 they order them too."""
    queues_max: int = 4096
    """Most queues that are valid, beside ``root`` and ``default``: the oldest."""
    preempt: int = 0
    """Which gangs end so that another one gets a place: 0 none, 1 those that declare themselves preemptable, 2 all that
    do not declare otherwise."""
    evictions_per_hour: int = 4
    """How often a gang ends for others in an hour at most; 0: no bound."""
    queue_evictions_per_hour: int = 0
    """How many gangs of a queue end for others in an hour at most; 0: no bound."""
    preempt_min_run_s: int = 0
    """How long a gang runs before it ends for one of its own queue."""
    reclaim_min_run_s: int = 0
    """How long it runs before it ends for one of another queue."""
    preempt_force: bool = True
    """Pods of a gang that ends for another one are deleted at once if they are still there ``grace_over_ms`` after the
    notice. Without, the place is reserved once more for as long, and given up if they are still there then."""
    preempt_backoff_s: int = 300
    """How long a gang waits whose place others have not left in time."""


class Epoch(Message, frozen=True):
    """A dispatcher became leader. Every waiting gang is tried again, unless it resumes."""

    KIND: ClassVar[str] = "ledger.epoch"
    VERSION: ClassVar[int] = BASELINE
    MUST_READ: ClassVar[bool] = True

    epoch: int
    base_seq: Sequence
    facts_seq: Sequence
    at_ms: UnixMs
    holder: str
    settings: Settings
    resumes: bool = False
    """The leader followed the history before, and has the settings and rules of the epoch before: gangs wait as they
    did, and those that were refused are not tried again for the epoch alone."""
    rules: list[StatedRule] = []
    """Rules of the queue, in the order in which they are asked; none: each gang gets what it finds."""


class Verdict(Part, frozen=True):
    """Decision of a round on one gang: a placement or a refusal."""

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement | None = None
    refusal: Refusal | None = None
    final: bool = False
    """Waiting does not change the refusal: the job is rejected."""
    queue: str = ""
    """Queue to which the placement is charged until it is given back; empty where queues do nothing."""


ReleaseReason = Literal["succeeded", "failed", "cancelled", "vanished", "bind-failed", "given-back", "fault", "backup"]


class Release(Part, frozen=True):
    """Chips are released: no pod of the attempt is left, or none was bound.

    ``given-back``: its nodes do not take its pods any more; it was not tried.
    """

    uid: str
    attempt: int
    reason: ReleaseReason
    again: bool = False
    """The gang returns to the queue with the next attempt."""
    ranks: list[int] = []
    """Only these ranks, ascending: their pods have ended while others run. Empty: the whole attempt. With reason
    ``backup`` only the places that are reserved for their backup pods: these are gone."""


WITHDRAWN: Final = "withdrawn"
"""Reason of an eviction that deletes nothing: no new pod of the attempt is bound, and those that are bound run on."""


class Eviction(Part, frozen=True):
    """An attempt that ends: the binder deletes its pods, but for some reasons. Their chips stay held while they run."""

    uid: str
    attempt: int
    reason: str


class Adoption(Part, frozen=True):
    """Pods in the cluster whose chips the ledger did not have."""

    namespace: str
    gang: str
    uid: str
    placement: Placement
    queue: str = ""
    """Queue to which it is charged; empty for ``default``."""


class Correction(Part, frozen=True):
    """Ranks whose pods have other chips of their nodes than the ledger says: those are theirs from this record on."""

    uid: str
    attempt: int
    ranks: list[int]
    """Ascending, at least one."""
    chips: list[list[int]]
    """All chips of each of ``ranks``, at least as many as it had, ascending."""

    def __post_init__(self) -> None:
        """Check that ranks and chips agree.

        Raises:
            ValueError: Ranks are not ascending or none, or there are not chips for each, ascending.
        """
        if not self.ranks or self.ranks[0] < 0 or any(a >= b for a, b in pairwise(self.ranks)):
            raise ValueError(f"ranks: {self.ranks}, expected at least one, ascending, from 0 on")
        if len(self.chips) != len(self.ranks) or any(a >= b for of in self.chips for a, b in pairwise(of)):
            raise ValueError(f"chips: {self.chips}, expected those of {len(self.ranks)} ranks, ascending")


class Admission(Part, frozen=True):
    """Decision on a PodGroup whose pods have no places: whether its controller is to make pods.

    It stands until another one follows, or the PodGroup is told of no more.
    """

    namespace: str
    name: str
    uid: str
    queue: str
    """Queue that it was judged for, and ..."""
    minimum: Amounts
    """... what its minimum asked for, and ..."""
    pods: int
    """... pods of its minimum."""
    refusal: QueueRefusal | None = None
    """Why it waits; None: it is admitted."""


class Round(Message, frozen=True):
    """Decisions of one round.

    They are folded in the order verdicts, corrections, recoveries, evictions, held, reserved, releases, adoptions.
    """

    KIND: ClassVar[str] = "ledger.round"
    VERSION: ClassVar[int] = BASELINE
    MUST_READ: ClassVar[bool] = True

    epoch: int
    base_seq: Sequence
    """Sequence of the record before. The record is void if it is another."""
    facts_seq: Sequence
    at_ms: UnixMs
    number: int
    verdicts: list[Verdict] = []
    evictions: list[Eviction] = []
    releases: list[Release] = []
    adoptions: list[Adoption] = []
    missing: list[int] = []
    """Shards that did not answer in time."""
    shards: int = 0
    """Number of shards if some are missing; 0 if none is."""
    recoveries: list[Recovery] = []
    held: list[HeldPlaces] = []
    """Places of jobs that start anew."""
    corrections: list[Correction] = []
    """All chips that they move ranks away from are free before any is given."""
    work_max: int = 0
    """Work that the round was bounded to, because one before was late; 0 for the bound of the release. Gangs that it
    left out for their work are refused as ``late``."""
    reserved: list[Reservation] = []
    """Places of gangs for which others leave."""
    admissions: list[Admission] = []
    """PodGroups that are admitted, in their order, or wait for another reason than before."""


class RecordHead(Part, frozen=True):
    """First fields of every record."""

    epoch: int
    base_seq: Sequence
    facts_seq: Sequence
    at_ms: UnixMs


_HEAD: Final = msgspec.msgpack.Decoder(RecordHead)
RECORDS: Final[dict[str, type[Message]]] = {Epoch.KIND: Epoch, Round.KIND: Round}
"""Records that this release reads, by kind."""


def check_readable(envelope: Envelope, *, sequence: int = 0) -> bool:
    """Whether a message of the ledger's stream is a record; a message of another kind is void for every reader.

    Args:
        envelope: The message.
        sequence: Its sequence; 0 where that is not known.

    Raises:
        NewerVersionError: Only a newer release reads the record: its kind or its version is unknown.
        OlderVersionError: A release before 0.5 wrote the record.
    """
    kind = RECORDS.get(envelope.kind)
    if kind is not None:
        check_version(envelope, kind.VERSION, sequence=sequence)
    elif envelope.kind.startswith(LEDGER):
        raise NewerVersionError(envelope, sequence=sequence)
    return kind is not None


def record_head(envelope: Envelope) -> RecordHead | None:
    """First fields of a record, without decoding the rest; None for a message that is no record.

    Raises:
        DecodeError: They do not decode, or there is no such version.
        VersionError: Only another release reads the record.
    """
    return head_of(envelope) if check_readable(envelope) else None


def head_of(envelope: Envelope) -> RecordHead:
    """As :func:`record_head`, for an envelope that is known to be that of a record.

    Raises:
        DecodeError: See :func:`record_head`.
    """
    if envelope.version < 1:
        raise DecodeError(f"version is {envelope.version}, expected 1 or more", kind=envelope.kind)
    try:
        return _HEAD.decode(envelope.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error), kind=envelope.kind) from error


def facts_known(data: bytes) -> int:
    """Last fact that a record knew; 0 for a message that is no record.

    Raises:
        DecodeError: It does not decode.
        VersionError: Only another release reads the record.
    """
    head = record_head(open_envelope(data))
    return head.facts_seq if head is not None else 0


__all__ = [
    "Admission",
    "Adoption",
    "Correction",
    "Epoch",
    "Eviction",
    "HeldPlaces",
    "RecordHead",
    "Recovery",
    "Refusal",
    "Release",
    "Reservation",
    "Round",
    "Settings",
    "StatedRule",
    "Verdict",
    "check_readable",
    "facts_known",
    "head_of",
    "record_head",
]
