"""Ledger: what Berth decided, appended once in one total order, never changed."""

from typing import ClassVar, Final, Literal

import msgspec

from berth.schemas.envelope import LEDGER, DecodeError, Envelope, NewerVersionError, open_envelope
from berth.schemas.message import Message, Part
from berth.schemas.placement import Placement
from berth.schemas.refusal import Refusal
from berth.schemas.units import Sequence, UnixMs

CORRECTIONS_OF_0_5: Final = 1
"""Number of the corrections of release 0.5 among :attr:`Settings.corrections`."""


class Settings(Part, frozen=True):
    """Settings that decisions depend on; a change is a new epoch."""

    reference_parity: bool = False
    """Every documented decision goes the reference's way."""
    strict_job_shape: bool = True
    """910A: up to 8 chips one pod, more means 8 a pod. Off under ``reference_parity``."""
    health_first: bool = False
    """Node health outranks affinity for every product form."""
    round_gangs_max: int = 256
    round_bytes_max: int = 400_000
    attempts_max: int = 5
    """Times a gang is placed before it fails, when its pods cannot be bound."""
    shard_retry_ms: int = 1_000
    """How long a gang that was refused while a shard was missing waits for its next try."""
    tombstone_after_ms: int = 600_000
    """How long a finished or cancelled job keeps its name in the facts."""
    strict_label_values: bool = True
    """A label with a value that it cannot have is refused. Off under ``reference_parity``, which reads it as absent."""
    needs_health: bool = False
    """A node with chips takes no work until somebody has said how healthy it is."""
    nslb_version: str = "1.0"
    """Switch affinity on a spine-leaf network: ``1.0`` or ``2.0``. On a single layer of leaves neither plays a part."""
    shared_tor_num: int = 2
    """Switch affinity 2.0: most shared leaves that one job uses, 1 or 2."""
    strict_product_support: bool = False
    """A job with switch affinity whose product, framework or use of chips the policy does not support is refused."""
    super_pod_size: int = 48
    """Nodes of a physical SuperPoD."""
    reserve_nodes: int = 2
    """Nodes of a physical SuperPoD that jobs leave to others as long as they find room elsewhere."""
    resource_levels: str = ""
    """JSON text of ``resource-level-config``: the levels of each tree, and the node labels that name its groups."""
    queue_policy: str = "skip"
    """What becomes of gangs behind one that finds no room: ``fifo`` (they wait), ``skip`` (they may go before it), ``easy`` (they
    may, unless that delays the oldest large gang) or ``conservative`` (unless that delays any of the oldest large gangs)."""
    reserve_chips: int = 64
    """Chips from which on a gang is large: it gets a reservation under ``easy`` and ``conservative``."""
    reserve_depth: int = 16
    """Most reservations at a time under ``conservative``."""
    unknown_run_ms: int = 86_400_000
    """Run time that is assumed for a gang that declares none and of whose like none has run yet."""
    skims_classes: bool = False
    """Under ``skip`` a round takes of a class only as many gangs as the free chips could be enough for, and those that had no
    verdict yet. Off, as in all records before 0.4, it takes the first gangs in order, whatever becomes of them."""
    corrections: int = 0
    """Corrections of rules that are in force: 0 none, as in all records before 0.5; 1 those of 0.5. With them a chip that is
    withheld takes no soft-share pod; chips that come back while they are shared wake classes, and so does any change where a
    SuperPoD had too many free nodes; an attempt is looked at again when what facts say under its name changes; nothing is kept of
    nodes that are gone; a new reservation lets those be tried who are held; a gang is larger than the cluster if a task of it is."""

    @property
    def corrected(self) -> bool:
        """Whether the corrections of 0.5 are in force."""
        return self.corrections >= CORRECTIONS_OF_0_5


class Epoch(Message, frozen=True):
    """A dispatcher became leader. Every waiting gang is tried again."""

    KIND: ClassVar[str] = "ledger.epoch"
    MUST_READ: ClassVar[bool] = True

    epoch: int
    base_seq: Sequence
    facts_seq: Sequence
    at_ms: UnixMs
    holder: str
    settings: Settings


class Verdict(Part, frozen=True):
    """What a round decided for one gang: a placement, or why not."""

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement | None = None
    refusal: Refusal | None = None
    final: bool = False
    """The refusal will not change by waiting: the job is rejected."""


ReleaseReason = Literal["succeeded", "failed", "cancelled", "vanished", "bind-failed"]


class Release(Part, frozen=True):
    """Chips given back: no pod of the attempt is left."""

    uid: str
    attempt: int
    reason: ReleaseReason
    again: bool = False
    """The gang goes back to the queue with the next attempt."""
    ranks: list[int] = []
    """Only these ranks, ascending: their pods have ended while others run. Empty: the whole attempt."""


class Eviction(Part, frozen=True):
    """Pods that the binder must delete; their chips stay taken until they are gone."""

    uid: str
    attempt: int
    reason: str


class Adoption(Part, frozen=True):
    """Pods found in the cluster with chips that the ledger did not know."""

    namespace: str
    gang: str
    uid: str
    placement: Placement


class Round(Message, frozen=True):
    """One decision of the dispatcher. It is folded in the order verdicts, evictions, releases, adoptions."""

    KIND: ClassVar[str] = "ledger.round"
    MUST_READ: ClassVar[bool] = True

    epoch: int
    base_seq: Sequence
    """Sequence of the record before; a record for which that is not so is void."""
    facts_seq: Sequence
    at_ms: UnixMs
    number: int
    verdicts: list[Verdict] = []
    evictions: list[Eviction] = []
    releases: list[Release] = []
    adoptions: list[Adoption] = []
    missing: list[int] = []
    """Shards that did not answer in time."""
    doubted: list[int] = []
    """Those of ``missing`` that did answer, but were not believed for gangs with switch affinity; for others they counted."""
    shards: int = 0
    """How many shards there are, where some are missing; 0 where none is, and in records of releases before 0.4."""


class RecordHead(Part, frozen=True):
    """First fields of every record."""

    epoch: int
    base_seq: Sequence
    facts_seq: Sequence
    at_ms: UnixMs


_HEAD: Final = msgspec.msgpack.Decoder(RecordHead)
_KINDS: Final[dict[str, type[Message]]] = {Epoch.KIND: Epoch, Round.KIND: Round}


def see_readable(envelope: Envelope) -> bool:
    """Whether a message of the ledger's stream is a record; a message of another kind is void for every reader.

    Raises:
        NewerVersionError: Only a newer release reads the record: its kind or its version is unknown.
    """
    kind = _KINDS.get(envelope.kind)
    if envelope.version > kind.VERSION if kind is not None else envelope.kind.startswith(LEDGER):
        raise NewerVersionError(envelope)
    return kind is not None


def record_head(envelope: Envelope) -> RecordHead | None:
    """First fields of a record, without decoding the rest; None for a message that is no record.

    Raises:
        DecodeError: They do not decode, or there is no such version.
        NewerVersionError: Only a newer release reads the record.
    """
    if not see_readable(envelope):
        return None
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
        NewerVersionError: Only a newer release reads the record.
    """
    head = record_head(open_envelope(data))
    return head.facts_seq if head is not None else 0


__all__ = [
    "Adoption",
    "Epoch",
    "Eviction",
    "RecordHead",
    "Refusal",
    "Release",
    "Round",
    "Settings",
    "Verdict",
    "facts_known",
    "record_head",
    "see_readable",
]
