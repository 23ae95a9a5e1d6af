"""A realistic message of every kind, and their stored bytes.

``python -m tests.contract.sample_messages`` stores the bytes of every kind under the release to come; after the release
they stay as they are. Longer than 400 lines because every field of every message has a value.
"""

from pathlib import Path
from typing import Final

from berth.schemas.columns import pack, pack_names
from berth.schemas.constraints import Expression, Taint, Term, Toleration
from berth.schemas.envelope import encode
from berth.schemas.facts import (
    HealthSeen,
    HealthSource,
    JobSeen,
    Leaf,
    LedgerSeen,
    MembersSeen,
    NodeClass,
    NodeHealth,
    NodesSeen,
    OutcomeSeen,
    Owner,
    PodMarks,
    PodPhase,
    PodRejection,
    PodsSeen,
    RankFailure,
    Rejection,
    TimerSeen,
    TopologySeen,
    Witness,
)
from berth.schemas.fault_facts import ApprovalSeen, BackupPod, DrainSeen, FlappingChip, GroupSeen, ReplacementsSeen
from berth.schemas.intake import Hold, JobCancel, JobRequest, JobSteer, Preemption, Task
from berth.schemas.ledger import Admission, Adoption, Correction, Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.nodes import HealthReport
from berth.schemas.offers import Advance, Ask, Demand, Offer, ScoreRequest, Shape, ShapeOffer
from berth.schemas.placement import ClaimVolume, Groups, Placement, Run, Share, placement_of
from berth.schemas.pod_constraints import (
    HostPort,
    LabelSelector,
    PodConstraints,
    PodProfile,
    PodTerm,
    PreferredNodes,
    PreferredPods,
    SpreadTerm,
)
from berth.schemas.queues.facts import QueueSeen, WaitingGroup
from berth.schemas.queues.queue import Queue
from berth.schemas.recording import (
    BackupEnd,
    BackupHead,
    BackupPart,
    BackupStream,
    Entry,
    RecordingEnd,
    RecordingHead,
    RecordingPart,
)
from berth.schemas.recovery import Awaited, BackupWaiting, HeldPlaces, Recovery, RecoveryStatus, Reservation
from berth.schemas.refusal import (
    BlockLack,
    ConstraintCount,
    NearGroup,
    NodeReason,
    QueueRefusal,
    ReasonCount,
    Refusal,
    SwitchLack,
)
from berth.schemas.rules import StatedRule
from berth.schemas.simulation import BindGang, BreakNode, EvictGang, GangBound, GangEvicted, NodeBroken, SimCounts
from berth.schemas.status import (
    DeadLetter,
    Heartbeat,
    JobStatus,
    JobSummary,
    KeptFact,
    LeaseHeld,
    Purge,
    Replay,
    Skip,
    SnapshotBody,
    SnapshotChunk,
    SnapshotEnd,
)
from berth.schemas.usage_facts import ClaimName, NamespaceSeen, PodSet, RankName, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageCapacity, StorageSeen, UnboundSeen, VolumeSeen

FOLDER: Final = Path(__file__).parent / "samples"
RELEASE: Final = "v0.5"

_AT_MS: Final = 1_760_000_000_000
_RESOURCE: Final = "huawei.com/Ascend910"
_LINE: Final = 96


def samples() -> dict[str, Message]:
    """A message of each kind, by kind, with a value in every field."""
    return {
        message.KIND: message
        for message in (*_facts(), *_intake(), *_ledger(), *_offers(), *_recordings(), *_simulation(), *_status())
    }


def store() -> list[Path]:
    """Store the bytes of messages in the folder of this release, and remove others; the files that change.

    From the first release on they stay: then only messages that have none get theirs.
    """
    folder = FOLDER / RELEASE
    folder.mkdir(parents=True, exist_ok=True)
    texts = {folder / f"{kind}.hex": encode(message).hex() for kind, message in samples().items()}
    changed = sorted(set(folder.iterdir()) - set(texts))
    for path in changed:
        path.unlink()
    for path, text in texts.items():
        lines = "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE)) + "\n"
        if not path.exists() or path.read_text() != lines:
            path.write_text(lines)
            changed.append(path)
    return changed


def stored(release: str) -> dict[str, bytes]:
    """Stored bytes of a release, by kind."""
    return {path.name.removesuffix(".hex"): bytes.fromhex(path.read_text()) for path in (FOLDER / release).iterdir()}


def _refusal() -> Refusal:
    return Refusal(
        code="no-room",
        field="tasks[0].chips",
        value="3",
        expected="1, 2, 4 or 8",
        task="worker",
        pods_need=4,
        pods_have=1,
        chips=8,
        form="910-8",
        form_because="nodes that offer huawei.com/Ascend910",
        nodes_total=10,
        nodes_fit=1,
        counts=[
            ReasonCount(reason=NodeReason.SHORTAGE, nodes=7),
            ReasonCount(reason=NodeReason.SHARD_MISSING, nodes=2),
        ],
        missing_shards=[3],
        switch=SwitchLack(
            policy="1.0",
            rule="logical-switches",
            need=12,
            have=9,
            leaf="leaf-1",
            leaf_have=7,
            places=8,
            leaves=6,
            full=1,
            barred=2,
            idle=4,
            shared=5,
            rows=1,
            rest=4,
            rows_have=1,
        ),
        blocks=BlockLack(
            rule="blocks",
            need=4,
            have=3,
            size=8,
            nodes_need=32,
            nodes_have=30,
            near=[NearGroup(name="3", nodes=15, blocks=1)],
        ),
        ahead="team-b/llm-13b",
        start_ms=_AT_MS + 3_600_000,
        constraints=[
            ConstraintCount(reason=NodeReason.SPREAD, nodes=1, names=["topology.kubernetes.io/zone"], lacking=1)
        ],
        yields=True,
        retry_ms=_AT_MS + 4_000,
        shapes=300,
        rule="tides",
        template="it holds {held} of {most} chips, after {ahead}",
        numbers={"held": 12, "most": 16},
        queue=_queue_refusal(),
    )


def _queue_refusal() -> QueueRefusal:
    return QueueRefusal(
        code="over-capability",
        queue="research",
        reason="its parent lab is Closed",
        dimension="huawei.com/Ascend910",
        held=12_000,
        leaving=800,
        limit=12_800,
        asked=1_600,
        namespace="team-a",
        others=("memory",),
        is_admission=True,
    )


def _placement() -> Placement:
    return placement_of(
        ["node-1.zone-a", "node-2.zone-a", "node-1.zone-a"],
        [(0, 1, 2, 3), (4, 5, 6, 7), ()],
        [Run(pods=2, chips=4, cpu_milli=24_000, memory_mib=98_304), Run(pods=1, chips=0, cpu_milli=500)],
        resource=_RESOURCE,
        share=Share(aicore=50, hbm_mib=16_384, policy="fixed-share"),
        groups=[
            Groups(
                "switches",
                policy="2.0",
                label="large-model-schema",
                size=2,
                names=["leaf-1", "leaf-2"],
                name_index=pack([1, 2, 0], 2),
                rules=["drained-and-shared"],
                states=pack([2, 1, 0], 1),
                annotated=True,
                warning="switch affinity 2.0 supports A2 training products, not 910A",
            ),
            Groups(
                "superpods",
                policy="a3",
                label="chat",
                size=1,
                names=["3", "5"],
                name_index=pack([1, 2, 0], 2),
                parts=[0, 1],
                rules=["fits", "reserve"],
                part_index=pack([1, 2, 0], 2),
                annotated=True,
            ),
        ],
        claims=[ClaimVolume("data-0", uid="c1", rank=1, volume="pv-1")],
    )


def _request() -> JobRequest:
    return JobRequest(
        namespace="team-a",
        name="llm-7b.pretrain",
        uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
        resource=_RESOURCE,
        tasks=[
            Task(
                name="worker",
                replicas=2,
                chips=4,
                cpu_milli=24_000,
                memory_mib=98_304,
                node_selector={"accelerator": "huawei-Ascend910"},
                affinity=[Term(expressions=(Expression(key="zone", operator="In", values=("a", "b")),))],
                tolerations=[Toleration(key="npu", operator="Equal", value="only", effect="NoSchedule")],
                labels={"app": "llm-7b"},
                constraints=_constraints(),
            ),
            Task(name="master", replicas=1, chips=0, cpu_milli=500),
        ],
        labels={"ring-controller.atlas": "ascend-910"},
        annotations={"sp-block": "16"},
        node_selector={"host-arch": "huawei-arm"},
        queue="research",
        priority=10,
        min_available=3,
        run_ms=60_000,
        origin="volcano-job",
        created_at_ms=_AT_MS,
        near={"app": "mindie-ms"},
        submitted_by="team-a",
        since_seq=9,
        is_fragile=True,
        is_unowned=True,
        avoided=["node-1.zone-a"],
        preemption=Preemption(
            never=True,
            preemptable=False,
            is_declared=True,
            critical=True,
            cooldown_s=600,
            notice_s=120,
            ignored=["annotation volcano.sh/jdb-min-available has no effect"],
        ),
    )


def _selector(value: str) -> LabelSelector:
    return LabelSelector((Expression(key="app", operator="In", values=(value,)),))


def _spread(key: str) -> SpreadTerm:
    return SpreadTerm(
        topology_key=key, max_skew=2, selector=_selector("llm-7b"), min_domains=3, by_affinity=False, by_taints=True
    )


def _constraints() -> PodConstraints:
    near = PodTerm(topology_key="zone", selector=_selector("data"), namespaces=("team-a",))
    apart = PodTerm("kubernetes.io/hostname", _selector("llm-7b"), ("team-a",), LabelSelector())
    return PodConstraints(
        affinity=(near,),
        anti_affinity=(apart,),
        spread=(_spread("zone"),),
        ports=(HostPort(port=29_500, protocol="UDP", address="10.0.0.7"),),
        resources=(("ephemeral-storage", 1 << 30), ("rdma/hca", 1)),
        claims=("data-0",),
        preferred_nodes=(PreferredNodes(5, Term((Expression(key="disk", operator="Exists"),))),),
        preferred_near=(PreferredPods(10, near),),
        preferred_apart=(PreferredPods(20, apart),),
        preferred_spread=(_spread("rack"),),
    )


def _rejection() -> Rejection:
    return Rejection(uid="5d0c", intake_seq=18, refusal=Refusal(code="name-in-use"), at_ms=_AT_MS + 5)


def _facts() -> tuple[Message, ...]:
    names = pack_names(["node-1.zone-a", "node-2.zone-a", "node-3.zone-a"])
    return (
        NodesSeen(
            domain="superpod-0",
            names=names,
            classes=[
                NodeClass(
                    product="910-8",
                    resource=_RESOURCE,
                    labels={"accelerator": "huawei-Ascend910", "zone": "a"},
                    taints=[Taint(key="npu", value="only", effect="NoExecute")],
                    cordoned=True,
                    ready=False,
                ),
                NodeClass(product="", resource=""),
            ],
            class_index=pack([0, 0, 1], 2),
            chips=pack([0xFF, 0xFF, 0], 8),
            allocatable=pack([8, 7, 0], 2),
            cpu_milli=pack([192_000, 192_000, 64_000], 4),
            memory_mib=pack([1_048_576, 1_048_576, 262_144], 4),
            superpods=["0"],
            superpod_index=pack([1, 1, 0], 4),
            leaves=["10.0.0.1"],
            leaf_index=pack([1, 1, 0], 4),
            position=pack([0, 1, 0], 2),
            addresses=["10.1.0.1", "10.1.0.2", "10.1.0.3"],
            at_ms=_AT_MS,
            racks=["7"],
            rack_index=pack([1, 1, 0], 4),
            cpu_others=pack([0, 4_000, 12_500], 4),
            memory_others=pack([0, 8_192, 65_536], 4),
            chips_others=pack([0, 3, 0], 2),
            unsettled=pack([0, 1, 0], 1),
            moving=["node-9"],
        ),
        HealthSeen(
            domain="superpod-0",
            names=names,
            unhealthy=pack([0, 0b1000_0000, 0], 8),
            recovering=pack([0b1, 0, 0], 8),
            network_unhealthy=pack([0, 0b10, 0], 8),
            level=pack([NodeHealth.OK, NodeHealth.SUB_HEALTHY, NodeHealth.EVICT], 1),
            network_known=pack([1, 1, 0], 1),
            source="device-info",
            at_ms=_AT_MS + 1,
            withheld=pack([0, 0b100, 0], 8),
            reasons=["chip 7: RestartNPU, code 80E24E00 (device-info)"],
            reason_index=pack([0, 1, 0], 4),
            updated_ms=pack([_AT_MS, _AT_MS, 0], 8),
            sub_healthy=pack([0, 0b1000, 0], 8),
            sources=pack([0, HealthSource.DEVICE_PLUGIN | HealthSource.NODED, HealthSource.AGENT], 1),
            flapping=[FlappingChip(1, 7, 3, _AT_MS - 1, _AT_MS + 120_000)],
            noded_level=pack([NodeHealth.OK, NodeHealth.SUB_HEALTHY, NodeHealth.EVICT], 1),
            switch_level=pack([NodeHealth.OK, NodeHealth.NO_NEW_WORK, NodeHealth.OK], 1),
        ),
        TopologySeen(
            kind="switch",
            leaves=[
                Leaf(
                    name="leaf-1",
                    address="10.0.0.1",
                    nodes=["node-1.zone-a", "node-2.zone-a"],
                    positions=[0, 1],
                    addresses=["10.9.0.11", "10.9.0.12"],
                )
            ],
            level="double_layer",
            at_ms=_AT_MS + 2,
            places=4,
            reason="leaf 10.0.0.2 is gone while jobs run below it",
        ),
        PodsSeen(
            namespace="team-a",
            gang="llm-7b.pretrain",
            uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
            attempt=1,
            rank=pack([0, 1], 4),
            nodes=pack_names(["node-1.zone-a", "node-2.zone-a"]),
            node_index=pack([0, 1], 4),
            phase=pack([PodPhase.RUNNING, PodPhase.TERMINATING], 1),
            chips=pack([0x0F, 0xF0], 8),
            resource=_RESOURCE,
            cpu_milli=24_000,
            memory_mib=98_304,
            foreign=True,
            at_ms=_AT_MS + 3,
            consumed=pack([1, 0], 1),
            tor_affinity="large-model-schema",
            leaf_states=pack([1, 5], 1),
            service="chat",
            blocks=pack([1, 2], 2),
            exit_codes=pack([0, 137], 4),
            marks=[PodMarks(1, {"fault-type": "SubHealth", "needVolcanoOpe": "delete"})],
            steering={"fault-scheduling": "grace|force"},
            steps=pack([0, 2], 4),
            job="vcjob.llm-7b",
            job_uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c12",
            rejections=bytes([0, PodRejection.DEVICES]),
            owner="5b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c13",
            queue="research",
            checkpoint_ms=_AT_MS - 60_000,
        ),
        ReplacementsSeen(
            namespace="team-a",
            job="vcjob.llm-7b",
            uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
            ranks=pack([0, 2], 4),
            at_ms=_AT_MS + 3,
            since_ms=pack([_AT_MS, _AT_MS + 3], 8),
            backups=[BackupPod(rank=1, pod="llm-7b-worker-1-hot-0042", uid="f0c3", is_bound=True)],
        ),
        GroupSeen(
            namespace="team-a",
            name="llm-7b-9d57",
            uid="5c1e",
            gone=True,
            labels={"fault-retry-times": "2", "fault-scheduling": "grace"},
            annotations={"huawei.com/recover_policy_path": "pod"},
            jobs=["vcjob.llm-7b"],
            at_ms=_AT_MS + 3,
            recover_ms=_AT_MS + 1,
            waiting=WaitingGroup(
                queue="research",
                minimum={"cpu": 32_000, "huawei.com/Ascend910": 1_600},
                is_declared=True,
                pods=2,
                priority=7,
                may_displace=False,
                created_ms=_AT_MS + 2,
                job="vcjob.llm-7b",
                is_admitted=True,
            ),
        ),
        DrainSeen(
            kind="node",
            name="node-1.zone-a",
            since_ms=_AT_MS + 3_600_000,
            grace_ms=600_000,
            by="ops@jump-1",
            reason="new power supply",
            gone=True,
            at_ms=_AT_MS + 3,
            force=True,
        ),
        QueueSeen(
            queue=Queue(
                name="research",
                parent="lab",
                capability={"huawei.com/Ascend910": 12_800},
                guarantee={"huawei.com/Ascend910": 1_600},
                deserved={"huawei.com/Ascend910": 6_400},
                weight=2,
                priority=1,
                reclaimable=False,
                is_fifo=True,
                state="Closing",
                created=20261130101500,
                namespaces=["nlp"],
                per_namespace={"huawei.com/Ascend910": 3_200},
                wrong=["spec.type: is 'x', expected a text"],
                notes=["spec.affinity is not used"],
            ),
            source="kubernetes",
            gone=True,
            by="ops@jump-1",
            at_ms=_AT_MS + 4,
        ),
        ApprovalSeen(
            kind="CardUnhealthy",
            domain="superpod-0",
            until_ms=_AT_MS + 600_000,
            by="ops@jump-1",
            reason="seen on site",
            gone=True,
            at_ms=_AT_MS + 3,
        ),
        MembersSeen(
            namespace="team-a",
            job="vcjob.llm-7b",
            uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
            rank=pack([0, 2], 4),
            pods=["llm-7b-worker-0", "llm-7b-master-0"],
            pod_uids=["f0c1", "f0c2"],
            rank_index=["1", ""],
            hold="2 of at least 3 pods are there",
            owner=Owner(kind="Job", name="llm-7b", uid="9d57"),
            podgroup="llm-7b-9d57",
            distributed=True,
            writes_real=True,
            at_ms=_AT_MS + 3,
            stale=[2],
            podgroup_uid="5c1e",
            backups=[BackupPod(rank=1, pod="llm-7b-worker-1-hot-0042", uid="f0c3")],
        ),
        JobSeen(
            namespace="team-a",
            name="llm-7b.pretrain",
            uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
            state="accepted",
            intake_seq=18,
            accepted_seq=17,
            at_ms=_AT_MS + 4,
            request=_request(),
            refusal=_refusal(),
            rejection=_rejection(),
            reason="accepted",
            after_seq=12,
            inferred=True,
            warnings=["label 'tor-afinity' is not known, and is close to 'tor-affinity'"],
            hold=Hold(by="ops@host", reason="its data is not there yet", at_ms=_AT_MS + 5, program="train-portal"),
            priority=-10,
        ),
        OutcomeSeen(
            namespace="team-a",
            name="llm-7b.pretrain",
            uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
            attempt=1,
            state="failed",
            bound=2,
            failures=[RankFailure(rank=2, reason="conflict: the pod has another uid")],
            ledger_seq=42,
            at_ms=_AT_MS + 6,
            step=2,
            done=1,
            held=[RankFailure(1, "HTTP 429: Cannot evict pod as it would violate the pod's disruption budget.")],
            open=[3, 5],
            given_back=True,
        ),
        TimerSeen(at_ms=_AT_MS + 7),
        LedgerSeen(
            "2026-11-21T10:00:00.123456789Z",
            epoch=7,
            sequence=42,
            at_ms=_AT_MS + 8,
            witnesses=[Witness("ml/a-0", "n1", 42)],
        ),
        *_usage(),
        *_volumes(),
    )


def _usage() -> tuple[Message, ...]:
    return (
        UsageSeen(
            domain="superpod-0",
            names=pack_names(["node-1.zone-a", "node-2.zone-a"]),
            pods=pack([3, 1], 4),
            pods_max=pack([110, 250], 4),
            resources=["hugepages-2Mi", "rdma/hca"],
            offered_node=pack([0, 1], 4),
            offered_index=pack([1, 1], 4),
            offered=pack([8, 8], 8),
            used_node=pack([1], 4),
            used_index=pack([1], 4),
            used=pack([2], 8),
            pod_sets=[PodSet("kube-system", {"k8s-app": "dns"}, ending=True), PodSet("team-b", {"app": "web"})],
            set_node=pack([0, 0, 1], 4),
            set_index=pack([0, 1, 1], 4),
            set_pods=pack([1, 2, 1], 4),
            terms=[PodTerm("zone", _selector("web"), ("team-b",))],
            term_node=pack([1], 4),
            term_index=pack([0], 4),
            ports=[HostPort(port=9_100, protocol="UDP", address="10.0.0.7")],
            port_node=pack([0], 4),
            port_index=pack([0], 4),
            claims=[ClaimName("team-b", "data-0")],
            claim_node=pack([1], 4),
            claim_index=pack([0], 4),
            drivers=["disk.example.com"],
            limit_node=pack([1], 4),
            limit_index=pack([0], 4),
            limit=pack([16], 4),
            relabelled=[RankName("0b7c", 1, 0)],
            at_ms=_AT_MS + 10,
        ),
        NamespaceSeen(name="team-a", labels={"kubernetes.io/metadata.name": "team-a"}, gone=True, at_ms=_AT_MS + 11),
    )


def _volumes() -> tuple[Message, ...]:
    return (
        ClaimSeen(
            namespace="team-a",
            name="data-0",
            uid="c1",
            gone=True,
            phase="bound",
            volume="pv-1",
            storage_class="fast",
            size=1 << 34,
            access=["ReadWriteOncePod"],
            mode="Block",
            selector=_selector("llm-7b"),
            selected_node="node-1.zone-a",
            deleting=True,
            at_ms=_AT_MS + 12,
        ),
        VolumeSeen(
            name="pv-1",
            uid="v1",
            gone=True,
            affinity=[Term((Expression(key="zone", operator="In", values=("a",)),))],
            labels={"app": "llm-7b"},
            storage_class="fast",
            size=1 << 35,
            access=["ReadWriteOnce"],
            mode="Block",
            claim=ClaimName("team-a", "data-0"),
            claim_uid="c1",
            driver="disk.example.com",
            handle="vol-7",
            deleting=True,
            at_ms=_AT_MS + 13,
        ),
        UnboundSeen(
            namespace="team-a",
            name="data-0",
            uid="c1",
            nodes=["node-1.zone-a"],
            volumes=["pv-2"],
            reason="no volume was made for node node-1.zone-a",
            at_ms=_AT_MS + 15,
        ),
        StorageSeen(
            name="fast",
            gone=True,
            provisioner="disk.example.com",
            waits=True,
            topologies=[Term((Expression(key="zone", operator="In", values=("a", "b")),))],
            has_capacity=True,
            capacities=[StorageCapacity(_selector("a"), capacity=1 << 40, volume_max=1 << 36)],
            at_ms=_AT_MS + 14,
        ),
    )


def _intake() -> tuple[Message, ...]:
    return (
        _request(),
        JobCancel(
            namespace="team-a",
            name="llm-7b.pretrain",
            uid="0b7c",
            reason="no longer needed",
            created_at_ms=_AT_MS,
            cancelled_by="train-portal",
            inferred=True,
        ),
        JobSteer(
            namespace="team-a",
            name="llm-7b.pretrain",
            uid="0b7c",
            held=True,
            priority=-10,
            by="program train-portal",
            reason="its data is not there yet",
            created_at_ms=_AT_MS,
            program="train-portal",
        ),
    )


def _settings() -> Settings:
    return Settings(
        reference_parity=True,
        strict_job_shape=False,
        health_first=True,
        round_gangs_max=128,
        round_bytes_max=200_000,
        attempts_max=4,
        shard_retry_ms=500,
        tombstone_after_ms=300_000,
        needs_health=True,
        nslb_version="2.0",
        shared_tor_num=1,
        strict_product_support=True,
        super_pod_size=64,
        reserve_nodes=3,
        resource_levels='{"default":{"level1":{"label":"rack","reservedNode":1}}}',
        queue_policy="conservative",
        reserve_chips=32,
        reserve_depth=8,
        unknown_run_ms=3_600_000,
        grace_over_ms=600_000,
        plan_before_delete=True,
        fault_wait_ms=30_000,
        escalate_block_ms=2_000,
        escalate_superpod_ms=4_000,
        escalate_job_ms=8_000,
        not_ready_ms=5_000,
        restarts_at_once=8,
        restart_share_percent=10,
        hold_places_ms=45_000,
        fault_settle_ms=150,
        waiting_jobs_max=30_000,
        waiting_pods_max=900_000,
        queues=2,
        queues_max=1_000,
        preempt=1,
        preempt_force=False,
        preempt_backoff_s=600,
    )


def _ledger() -> tuple[Message, ...]:
    uid = "0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11"
    return (
        Epoch(
            epoch=3,
            base_seq=40,
            facts_seq=99,
            at_ms=_AT_MS,
            holder="dispatcher-0",
            settings=_settings(),
            resumes=True,
            rules=[StatedRule("conservative", {"reserve_chips": 32, "reserve_depth": 8}), StatedRule("plain-pods")],
        ),
        Round(
            epoch=3,
            base_seq=41,
            facts_seq=101,
            at_ms=_AT_MS + 8,
            number=7,
            verdicts=[
                Verdict(
                    namespace="team-a", name="llm-7b.pretrain", uid=uid, attempt=1, placement=_placement(), queue="a"
                ),
                Verdict(namespace="team-b", name="too-large", uid="77", attempt=1, refusal=_refusal(), final=True),
            ],
            evictions=[Eviction(uid="41", attempt=2, reason="chip 3 of node-1.zone-a is unhealthy")],
            releases=[Release(uid="40", attempt=1, reason="bind-failed", again=True, ranks=[0, 2])],
            adoptions=[Adoption(namespace="kube-system", gang="foreign", uid="39", placement=_placement(), queue="b")],
            missing=[3],
            shards=4,
            recoveries=[
                Recovery(
                    namespace="team-a",
                    name="llm-7b.pretrain",
                    uid=uid,
                    attempt=1,
                    step=2,
                    kind="CardUnhealthy",
                    cause="pod of rank 0: its chip 2 on node-1.zone-a is unhealthy",
                    scope="rank-block",
                    how="grace",
                    ranks=[0, 1, 2],
                    faulty=[0],
                    since_ms=_AT_MS + 7,
                    until_ms=_AT_MS + 900_007,
                    placement=_placement(),
                    retries_left=2,
                    nodes=["node-1.zone-a"],
                    saves=True,
                ),
                Recovery(
                    namespace="team-a",
                    name="llm-7b.pretrain",
                    uid=uid,
                    attempt=1,
                    step=3,
                    kind="SubHealthFault",
                    cause="the backup pod of rank 1 gets a place for a hot switch",
                    scope="pod",
                    how="backup",
                    ranks=[1, 2, 3],
                    faulty=[1],
                    since_ms=_AT_MS + 7,
                    placement=_placement(),
                    backups=["f0c3", "f0c4", "f0c5"],
                ),
            ],
            held=[
                HeldPlaces(
                    namespace="team-a", name="llm-7b.restart", uid="40", attempt=1, ranks=[1], until_ms=_AT_MS + 45_008
                )
            ],
            reserved=[
                Reservation(
                    namespace="team-b",
                    name="llm-70b",
                    uid="41",
                    attempt=2,
                    placement=_placement(),
                    awaits=[Awaited(uid="38", attempt=2)],
                    until_ms=_AT_MS + 930_008,
                    queue="research",
                )
            ],
            corrections=[Correction(uid="38", attempt=2, ranks=[0, 3], chips=[[1, 2], [6, 7]])],
            work_max=2_000_000,
            admissions=[
                Admission(
                    namespace="team-a",
                    name="llm-7b-9d57",
                    uid="5c1e",
                    queue="research",
                    minimum={"huawei.com/Ascend910": 1_600},
                    pods=2,
                    refusal=_queue_refusal(),
                )
            ],
        ),
    )


def _offers() -> tuple[Message, ...]:
    shape = Shape(
        form="910-8",
        resource=_RESOURCE,
        chips=4,
        gang_pods=2,
        cpu_milli=24_000,
        memory_mib=98_304,
        selector=(("accelerator", "huawei-Ascend910"), ("host-arch", "huawei-arm")),
        affinity=(Term(expressions=(Expression(key="zone", operator="NotIn", values=("c",)),)),),
        tolerations=(Toleration(key="npu", operator="Exists"),),
        share=Share(aicore=25, hbm_mib=8_192, policy="elastic"),
        sub_health="graceExit",
        demand=Demand(
            topology="racks",
            policy="rack",
            sizes=(2, 4),
            groups=2,
            options=(("near/app", "mindie"), ("service", "chat"), ("soft", "true")),
            uses_network=True,
        ),
        profile=PodProfile("team-a", (("app", "llm-7b"),), _constraints(), is_whole=False),
        drained_ms=_AT_MS + 3_600_000,
    )
    return (
        ScoreRequest(
            round=7, epoch=3, facts_seq=101, ledger_seq=41, asks=[Ask(shape=shape, count=12)], wait_ms=40, keep_ms=50
        ),
        Offer(
            shard=1,
            round=7,
            facts_seq=101,
            ledger_seq=41,
            ready=True,
            shapes=[
                ShapeOffer(
                    names=pack_names(["node-2.zone-a", "node-1.zone-a"]),
                    runs=[(64, 1), (32, 1)],
                    exhausted=True,
                    total=3,
                    fit=2,
                    counts=[ReasonCount(reason=NodeReason.OTHER_RESOURCE, nodes=1)],
                    usable=bytes([0b0000_0110]),
                    error="a node that fits has no chip for the pod",
                )
            ],
        ),
        Advance(epoch=3, facts_seq=102, ledger_seq=42, at_ms=_AT_MS + 9),
    )


def _simulation() -> tuple[Message, ...]:
    return (
        BindGang(
            namespace="team-a", name="llm-7b.pretrain", uid="0b7c", attempt=1, placement=_placement(), run_ms=60_000
        ),
        GangBound(bound=2, failures=[RankFailure(rank=2, reason="no such node")], retry_after_ms=250),
        SimCounts(
            nodes=42,
            gangs_live=3,
            pods_live=12,
            chips_held=96,
            pods_bound=40,
            pods_failed=1,
            pods_ended=28,
            double_allocations=1,
            overcommits=2,
            swapped=3,
            admission_errors=4,
        ),
        EvictGang(namespace="team-a", name="llm-7b.pretrain", uid="0b7c", attempt=1, reason="cancelled"),
        GangEvicted(pods=3),
        BreakNode(
            node="node-1",
            fault="chip",
            chips=[3],
            level="RestartNPU",
            code="80E24E00",
            lasts_ms=60_000,
            repair=True,
            leaf=True,
            pod="team-a/llm-worker-1",
            exit_code=137,
        ),
        NodeBroken(reason="no such node"),
        HealthReport(
            node="node-1",
            unhealthy=[7],
            recovering=[6],
            network_unhealthy=[5],
            level="sub-health",
            reason="fan 2 is slow",
            updated_ms=_AT_MS,
            source="rack-agent",
        ),
    )


def _status() -> tuple[Message, ...]:
    return (
        JobStatus(
            namespace="team-a",
            name="llm-7b.pretrain",
            uid="0b7c7a2e-9d6b-4c35-9d57-2f6f2a1d4c11",
            phase="waiting",
            since_ms=_AT_MS,
            at_ms=_AT_MS + 8,
            attempt=1,
            sentence="4 pods of 8 chips are needed, and 1 fits: 7 of 10 nodes have fewer free chips.",
            refusal=_refusal(),
            placement=_placement(),
            ledger_seq=42,
            facts_seq=101,
            intake_seq=18,
            pods=3,
            chips=8,
            queue="research",
            priority=10,
            rejection=_rejection(),
            warning="switch affinity 2.0 supports A2 training products, not 910A",
            recovery=RecoveryStatus(
                step=2,
                scope="rank-block",
                how="grace",
                kind="CardUnhealthy",
                cause="pod of rank 0: its chip 2 on node-1.zone-a is unhealthy",
                ranks=[0, 1],
                faulty=[0],
                since_ms=_AT_MS,
                until_ms=_AT_MS + 900_000,
                retries_left=2,
                nodes=["node-1.zone-a"],
                attempt=1,
                open=[1],
                placed_ms=_AT_MS + 9_000,
                held=[1],
                held_until_ms=_AT_MS + 45_000,
                unplaced=[1],
                refusal="no node has 8 free chips",
            ),
            restart_held="a fault would restart it: CardUnhealthy in domain superpod-0",
            backups=[BackupWaiting(rank=1, uid="f0c3", refusal="no node has 8 free chips")],
            submitted_ms=_AT_MS - 60_000,
            accepted_seq=17,
            is_plain=True,
            is_fragile=True,
            is_held=True,
        ),
        JobSummary(
            namespace="team-a",
            name="job-summary-llm-7b-1",
            job="llm-7b",
            job_uid="9d57",
            chunk=1,
            total=2,
            data={"job_status": "running"},
            deleted=True,
            at_ms=_AT_MS,
        ),
        LeaseHeld(
            holder="dispatcher-0", epoch=3, at_ms=_AT_MS, silence_ms=400, ledger="2026-07-01T12:00:00Z", ledger_seq=12
        ),
        Heartbeat(process="dispatcher-0-17-5f1c2a", is_over=True, ledger_seq=42, facts_seq=101),
        DeadLetter(
            stream="INTAKE",
            sequence=19,
            subject="berth.default.intake.request.team-a.broken",
            reason="intake.request: Input data was truncated",
            data=b"\x93\x01",
            at_ms=_AT_MS,
            code="undecodable",
            stored_ms=_AT_MS - 3,
            size_bytes=2,
            headers={"Nats-Msg-Id": "broken-1"},
            replay=Replay(at_ms=_AT_MS + 5, by="host-1-5f1c2a", after_seq=19, sequence=24),
            purge=Purge(at_ms=_AT_MS + 9, by="host-2-5f1c2b"),
        ),
        Skip(
            sequence=42,
            last_seq=43,
            digest="000102030405060708090a0b0c0d0e0f",
            reason="deleted",
            by="berth-17",
            at_ms=_AT_MS,
            was_void=True,
        ),
        SnapshotChunk(data=bytes(range(16))),
        SnapshotEnd(ledger_seq=42, facts_seq=101, chunks=1, bytes_total=16, checksum=0xCECEE288, at_ms=_AT_MS),
        _snapshot(),
    )


def _snapshot() -> SnapshotBody:
    fact = KeptFact(subject="berth.default.fact.timer", sequence=101, data=encode(TimerSeen(at_ms=_AT_MS + 7)))
    return SnapshotBody(
        ledger_seq=42, facts_seq=101, facts=[fact], ledger=b"\x90", digest=bytes(range(16)), fold_version=1
    )


def _recordings() -> tuple[Message, ...]:
    timer = encode(TimerSeen(at_ms=_AT_MS + 9))
    return (
        BackupHead(
            release="0.5.0",
            cell="default",
            made_at_ms=_AT_MS,
            streams=[BackupStream("LEDGER", 7, 42, 3, 0), BackupStream("FACTS", 60, 101, 3, 4 << 30)],
        ),
        BackupPart("LEDGER", [Entry(7, timer, "ledger")]),
        BackupEnd(counts=[36, 42], digest=bytes(range(16))),
        RecordingHead(
            release="0.5.0",
            cell="default",
            made_at_ms=_AT_MS,
            settings=_settings(),
            start=_snapshot(),
            anonymous=True,
        ),
        RecordingPart(entries=[Entry(sequence=102, data=timer, subject="berth.default.fact.timer")]),
        RecordingEnd(facts=1, records=2, facts_seq=102, ledger_seq=44),
    )


if __name__ == "__main__":
    store()
