"""Settings of the dispatcher."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from berth.core.topologies.registry import TOPOLOGIES
from berth.runtime.config import SHARDS_MAX, ServiceConfig
from berth.schemas.ledger import Settings


class DecisionConfig(Settings, frozen=True, array_like=False, kw_only=True, forbid_unknown_fields=True):
    """Settings that decisions depend on, with their bounds. A change begins a new epoch.

    A record has no bounds: a release with other ones reads it too.
    """

    nslb_version: Literal["1.0", "2.0"] = "1.0"
    queue_policy: Literal["fifo", "skip", "easy", "conservative"] = "skip"
    round_gangs_max: Annotated[int, Meta(ge=1, le=4096)] = 256
    round_bytes_max: Annotated[int, Meta(ge=10_000, le=4_000_000)] = 400_000
    attempts_max: Annotated[int, Meta(ge=1, le=100)] = 5
    shard_retry_ms: Annotated[int, Meta(ge=10, le=600_000)] = 1_000
    tombstone_after_ms: Annotated[int, Meta(ge=0, le=30 * 86_400_000)] = 600_000
    shared_tor_num: Annotated[int, Meta(ge=1, le=2)] = 2
    super_pod_size: Annotated[int, Meta(ge=1, le=32_768)] = 48
    reserve_nodes: Annotated[int, Meta(ge=0, le=32_767)] = 2
    reserve_chips: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    reserve_depth: Annotated[int, Meta(ge=1, le=256)] = 16
    unknown_run_ms: Annotated[int, Meta(ge=1000, le=365 * 86_400_000)] = 86_400_000
    grace_over_ms: Annotated[int, Meta(ge=2_000, le=3_600_000)] = 900_000
    fault_wait_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 60_000
    escalate_block_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 3_000
    escalate_superpod_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 6_000
    escalate_job_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 12_000
    not_ready_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    restarts_at_once: Annotated[int, Meta(ge=1, le=100_000)] = 16
    restart_share_percent: Annotated[int, Meta(ge=1, le=100)] = 20
    hold_places_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 60_000
    fault_settle_ms: Annotated[int, Meta(ge=0, le=10_000)] = 200
    waiting_jobs_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 25_000
    waiting_pods_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    queues: Annotated[int, Meta(ge=0, le=2)] = 0
    queues_max: Annotated[int, Meta(ge=1, le=100_000)] = 4096
    preempt: Annotated[int, Meta(ge=0, le=2)] = 0
    evictions_per_hour: Annotated[int, Meta(ge=0, le=3_600)] = 4
    queue_evictions_per_hour: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    preempt_min_run_s: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 0
    reclaim_min_run_s: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 0
    preempt_backoff_s: Annotated[int, Meta(ge=1, le=86_400)] = 300

    def __post_init__(self) -> None:
        """Check that settings go together.

        Raises:
            ValueError: ``reserve_nodes`` is not less than ``super_pod_size``.
        """
        if self.reserve_nodes >= self.super_pod_size:
            raise ValueError(
                f"reserve_nodes is {self.reserve_nodes}: expected fewer than super_pod_size, which is {self.super_pod_size}"
            )
        if not self.escalate_block_ms <= self.escalate_superpod_ms <= self.escalate_job_ms:
            raise ValueError(
                f"escalate_block_ms, escalate_superpod_ms, escalate_job_ms are {self.escalate_block_ms},"
                f" {self.escalate_superpod_ms}, {self.escalate_job_ms}: expected none to be less than the one before it"
            )
        for topology in TOPOLOGIES:
            if error := topology.settings_error(self):
                raise ValueError(error)

    def to_settings(self) -> Settings:
        """As an epoch record carries them."""
        return Settings(**msgspec.structs.asdict(self))


class DispatcherConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dispatcher."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "heartbeat_s": "0.1 s",
        "stalled_s": "30 s",
        "snapshot_facts": "100,000",
        "snapshot_chunk_bytes": "500,000 bytes",
    }
    MOVED: ClassVar[Mapping[str, str]] = {"faults": "decisions"}

    shards: Annotated[int, Meta(ge=0, le=SHARDS_MAX)] = 0
    """Number of scorer shards; 0 scores in this process."""
    decisions: DecisionConfig = DecisionConfig()
    gather_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """How long a round waits for offers."""
    holder: str = ""
    """Name in the lease; a dispatcher that starts again with the same name takes its lease back at once. Empty: a new
    name at each start."""
    lease: bool = True
    """Whether the leader holds a lease and sends heartbeats, so that a standby takes over. Without one it leads if no
    other dispatcher answers and none holds the lease; for a cell with one dispatcher only."""
    lease_s: Annotated[int, Meta(ge=1, le=600)] = 5
    """How long the lease lasts without renewal; another dispatcher may lead after that even if it cannot tell whether
    the holder is alive."""
    heartbeat_lost_s: Annotated[float, Meta(ge=0.2, le=60)] = 0.4
    """After so long without a heartbeat, of which there is one every 0.1 s, a standby asks the leader whether it is
    alive. If no leader is connected, it takes over at once ..."""
    heartbeat_answer_s: Annotated[float, Meta(ge=0.01, le=60)] = 2.0
    """... and otherwise after so long without an answer."""
    snapshot_records: Annotated[int, Meta(ge=10, le=1_000_000)] = 2_000
    """A snapshot is written after so many ledger records, or after 100,000 facts."""
    snapshot_apart_s: Annotated[int, Meta(ge=0, le=7 * 86_400)] = 3_600
    """Of older snapshots one in so many seconds is kept."""
    snapshot_synced_s: Annotated[int, Meta(ge=0, le=7 * 86_400)] = 600
    """After so long a snapshot is on the server's disk; the ledger is cut at none that is younger."""
    intake_batch_max: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    """Requests judged between two rounds."""
    tick_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """Longest pause between two checks of timers."""
    fault_point: str = ""
    """For tests of crashes: ``point:count``, where the process kills itself."""
    expire_after_s: Annotated[int, Meta(ge=0, le=3650 * 86_400)] = 8 * 86_400
    """What is over leaves LATEST and STATUS after so long; 0 keeps it forever."""
    expire_every_s: Annotated[float, Meta(gt=0, le=86_400)] = 600.0
    """Pause between two looks for what is over."""
