"""All messages, and their JSON Schemas for readers in other languages."""

from typing import Any, Final

from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.intake import JobCancel, JobRequest, JobSteer
from berth.schemas.ledger import Epoch, Round
from berth.schemas.message import Message
from berth.schemas.nodes import HealthReport
from berth.schemas.offers import Advance, Offer, ScoreRequest
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.recording import BackupEnd, BackupHead, BackupPart, RecordingEnd, RecordingHead, RecordingPart
from berth.schemas.simulation import BindGang, BreakNode, EvictGang, GangBound, GangEvicted, NodeBroken, SimCounts
from berth.schemas.status import (
    DeadLetter,
    Heartbeat,
    JobStatus,
    JobSummary,
    LeaseHeld,
    Skip,
    SnapshotBody,
    SnapshotChunk,
    SnapshotEnd,
)
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

MESSAGES: Final[tuple[type[Message], ...]] = (
    BackupEnd,
    BackupHead,
    BackupPart,
    DeadLetter,
    ApprovalSeen,
    ClaimSeen,
    DrainSeen,
    GroupSeen,
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NamespaceSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    QueueSeen,
    ReplacementsSeen,
    StorageSeen,
    TimerSeen,
    TopologySeen,
    UnboundSeen,
    UsageSeen,
    VolumeSeen,
    Heartbeat,
    JobCancel,
    JobRequest,
    JobSteer,
    LeaseHeld,
    Epoch,
    Round,
    RecordingEnd,
    RecordingHead,
    RecordingPart,
    HealthReport,
    Advance,
    Offer,
    ScoreRequest,
    BindGang,
    GangBound,
    BreakNode,
    NodeBroken,
    SimCounts,
    EvictGang,
    GangEvicted,
    Skip,
    SnapshotBody,
    SnapshotChunk,
    SnapshotEnd,
    JobStatus,
    JobSummary,
)
"""Every kind of message, in order of ``KIND``."""


def portable(schema: Any) -> Any:  # noqa: ANN401  # any JSON
    """A schema whose patterns are those of ECMA-262, with ``$`` for the end of a text."""
    if isinstance(schema, dict):
        return {
            key: value.replace("\\Z", "$") if key == "pattern" and isinstance(value, str) else portable(value)
            for key, value in schema.items()
        }
    return [portable(one) for one in schema] if isinstance(schema, list | tuple) else schema
