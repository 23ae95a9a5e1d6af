"""Settings of the dispatcher."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from berth.core.topologies.registry import TOPOLOGIES
from berth.runtime.config import SHARDS_MAX, ServiceConfig
from berth.schemas.ledger import Settings


class DecisionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that decisions depend on. A change begins a new epoch."""

    reference_parity: bool = False
    """Every documented decision goes the reference's way; switches the two ``strict_`` settings off."""
    strict_job_shape: bool = True
    """910A: up to 8 chips in one pod, more means 8 a pod."""
    strict_label_values: bool = True
    """A label with a value that it cannot have is refused; off, it counts as absent."""
    needs_health: bool = False
    """A node with chips accepts no work until its health is known. For clusters where ``health`` runs."""
    nslb_version: Literal["1.0", "2.0"] = "1.0"
    """Switch affinity on a spine-leaf network. A single layer of leaves (``tor_level``) has a policy of its own."""
    shared_tor_num: Annotated[int, Meta(ge=1, le=2)] = 2
    """Switch affinity 2.0: most shared leaves that one job uses."""
    strict_product_support: bool = False
    """A job whose product, framework or use of chips its switch affinity does not support is refused instead of placed
    with a warning."""
    super_pod_size: Annotated[int, Meta(ge=1, le=32_768)] = 48
    """Nodes of a physical SuperPoD."""
    reserve_nodes: Annotated[int, Meta(ge=0, le=32_767)] = 2
    """Nodes of a physical SuperPoD that jobs leave to others as long as they find room elsewhere; below
    ``super_pod_size``."""
    resource_levels: str = ""
    """JSON text of ``resource-level-config``: the levels of each tree, and the node labels that name its groups."""
    queue_policy: Literal["fifo", "skip", "easy", "conservative"] = "skip"
    """What becomes of gangs behind one that finds no room: they wait, may go before it, or may as long as that delays
    the oldest large gang (``easy``) or the oldest large gangs (``conservative``) by nothing."""
    reserve_chips: Annotated[int, Meta(ge=1, le=1_000_000)] = 64
    """Chips from which on a gang is large and gets a reservation."""
    reserve_depth: Annotated[int, Meta(ge=1, le=256)] = 16
    """Most reservations at a time under ``conservative``."""
    queues: Annotated[int, Meta(ge=0, le=2)] = 0
    """What queues do: 0 nothing, 1 they limit their jobs, 2 they order them too."""
    queues_max: Annotated[int, Meta(ge=1, le=100_000)] = 4096
    """Most queues that are valid, beside ``root`` and ``default``: the oldest."""
    preempt: Annotated[int, Meta(ge=0, le=2)] = 0
    """Which gangs end so that another one gets a place: 0 none, 1 those that declare themselves preemptable, 2 all that
    do not declare otherwise."""
    evictions_per_hour: Annotated[int, Meta(ge=0, le=3_600)] = 4
    """How often a gang ends for others in an hour at most; 0: no bound."""
    queue_evictions_per_hour: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """How many gangs of a queue end for others in an hour at most; 0: no bound."""
    preempt_min_run_s: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 0
    """How long a gang runs before it ends for one of its own queue."""
    reclaim_min_run_s: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 0
    """How long it runs before it ends for one of another queue."""
    unknown_run_ms: Annotated[int, Meta(ge=1000, le=365 * 86_400_000)] = 86_400_000
    """Run time that is assumed for a gang that declares none when no gang like it has run yet."""
    health_first: bool = False
    """A healthier node outranks a better affinity, for every product form."""
    round_gangs_max: Annotated[int, Meta(ge=1, le=4096)] = 256
    """Gangs that one round decides at most."""
    round_bytes_max: Annotated[int, Meta(ge=10_000, le=4_000_000)] = 400_000
    """Bytes of placements in one record; a larger gang has a round of its own."""
    attempts_max: Annotated[int, Meta(ge=1, le=100)] = 5
    """Times a gang is placed when its pods cannot be bound; those that fail within a minute count once."""
    shard_retry_ms: Annotated[int, Meta(ge=10, le=600_000)] = 1_000
    """How long a gang refused while a shard was missing waits for the next try."""
    tombstone_after_ms: Annotated[int, Meta(ge=0, le=30 * 86_400_000)] = 600_000
    """How long a job that is over keeps its name in the facts."""
    waiting_jobs_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 25_000
    """Most jobs that wait in one namespace, and of one program; a request beyond them is refused with ``too-many``."""
    waiting_pods_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    """Most pods of jobs that wait in one namespace, and of one program."""

    def __post_init__(self) -> None:
        """See that settings go together.

        Raises:
            ValueError: They do not.
        """
        if self.reserve_nodes >= self.super_pod_size:
            raise ValueError(
                f"reserve_nodes is {self.reserve_nodes}: expected fewer than super_pod_size, which is {self.super_pod_size}"
            )
        settings = self.to_settings()
        for topology in TOPOLOGIES:
            if error := topology.settings_error(settings):
                raise ValueError(error)

    def to_settings(self) -> Settings:
        """As an epoch record carries them."""
        return Settings(**msgspec.structs.asdict(self))


class FaultsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done about faults of running jobs, by the labels of each. A change begins a new epoch."""

    grace_over_ms: Annotated[int, Meta(ge=2_000, le=3_600_000)] = 900_000
    """Pods that are evicted for a fault and are still there after so long are deleted at once."""
    plan_before_delete: bool = True
    """Healthy pods leave only when there are places for those that leave; off under ``reference_parity``."""
    fault_wait_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 60_000
    """With ``plan_before_delete``: after so long without places those leave all the same that are sub-healthy, a job of
    which no pod is healthy, and what is drained."""
    escalate_block_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 3_000
    """How long a new pod waits for a place before the block of ranks around it leaves (Atlas 950)."""
    escalate_superpod_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 6_000
    """... before the logical SuperPoD, or the group of level 1, around it leaves."""
    escalate_job_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 12_000
    """... before the whole job restarts; with ``plan_before_delete`` once there are places."""
    not_ready_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    """How long a node is not ready before its pods are faulty."""
    hold_places_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 60_000
    """How long the healthy places of a job that starts anew as a whole stay held for it; 0 frees them at once. Off
    under ``reference_parity``."""
    fault_settle_ms: Annotated[int, Meta(ge=0, le=10_000)] = 200
    """Nodes below one leaf switch or in one SuperPoD that are gone or not ready, and several that a source reports as
    unhealthy, make pods faulty once no further one has followed for so long, or none is left; 0: at once."""
    restarts_at_once: Annotated[int, Meta(ge=1, le=100_000)] = 16
    """Most jobs that restart as a whole at a time for one cause: faults of one kind in one domain."""
    restart_share_percent: Annotated[int, Meta(ge=1, le=100)] = 20
    """If more than ``restarts_at_once`` jobs would restart for faults of one kind that sources report of nodes, and
    they are more than so many percent of the running jobs, each of them waits for a second source or an approval."""

    def __post_init__(self) -> None:
        """See that the steps follow one another.

        Raises:
            ValueError: They do not.
        """
        if not self.escalate_block_ms <= self.escalate_superpod_ms <= self.escalate_job_ms:
            raise ValueError(
                f"escalate_block_ms, escalate_superpod_ms, escalate_job_ms are {self.escalate_block_ms},"
                f" {self.escalate_superpod_ms}, {self.escalate_job_ms}: expected none to be less than the one before it"
            )


class DispatcherConfig(ServiceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dispatcher."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {
        "heartbeat_s": "0.1 s",
        "stalled_s": "30 s",
        "snapshot_facts": "100,000",
        "snapshot_chunk_bytes": "500,000 bytes",
    }

    shards: Annotated[int, Meta(ge=0, le=SHARDS_MAX)] = 0
    """Number of scorer shards; 0 scores in this process."""
    decisions: DecisionConfig = DecisionConfig()
    faults: FaultsConfig = FaultsConfig()
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

    def __post_init__(self) -> None:
        """See that settings go together.

        Raises:
            ValueError: They do not.
        """

    def to_settings(self) -> Settings:
        """Settings that decisions depend on, as an epoch record carries them."""
        return msgspec.structs.replace(self.decisions.to_settings(), **msgspec.structs.asdict(self.faults))
