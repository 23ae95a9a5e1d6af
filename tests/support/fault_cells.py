"""A cell of the core whose pods, labels and faults are played: binder and controllers do what the ledger says."""

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

import msgspec

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode
from berth.schemas.facts import NodeHealth, OutcomeSeen, PodMarks, PodPhase, PodsSeen
from berth.schemas.fault_facts import BackupPod, GroupSeen, ReplacementsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.recovery import Recovery
from berth.schemas.status import SnapshotBody
from tests.support.core_cells import AT_ONCE, SUBJECTS, CoreCell
from tests.support.replacements import holding_of

GRACE = {"fault-scheduling": "grace"}
PODS_FIRST = {**GRACE, "pod-rescheduling": "on"}


class Pod(msgspec.Struct):
    """A pod that is bound."""

    node: str
    mask: int
    step: int = 0
    phase: PodPhase = PodPhase.RUNNING
    exit_code: int = 0
    marks: dict[str, str] = {}


class FaultCell(CoreCell):
    """Jobs run, fail, and are made again."""

    IS_APART: ClassVar[bool] = False
    """Each leaf switch and SuperPoD is a domain of its own; otherwise all nodes are in one."""

    def __init__(self, nodes: Iterable[NodeDescription], **settings: object) -> None:
        self.published: dict[str, tuple[list[NodeDescription], list[NodeCondition]]] = {}
        super().__init__(list(nodes), keeps=True, **settings)
        self.pods: dict[str, dict[int, Pod]] = {}
        self.waits_ms: dict[str, dict[int, int]] = {}
        self.records: list[Round] = []
        self.recoveries: list[Recovery] = []

    def begin(self, **settings: object) -> None:
        """Begin another epoch."""
        fold = self.state.fold
        new = Settings(**{**AT_ONCE, **settings})  # type: ignore[arg-type]  # fields of the settings
        record = Epoch(fold.epoch + 1, fold.head, self.state.facts_seq, self.now_ms, "d", new, rules=rules_of(new))
        self.scheduler.begin(self.folded(record).changes)

    def turn(self, missing_shards: MissingShards | None = None) -> Round | None:
        """One turn; a record if something was decided."""
        opening = self.scheduler.open(self.now_ms).opening
        if opening is None:
            return None
        choice = self.scheduler.choose_alone(opening, missing_shards)
        assert not choice.set_aside, choice.set_aside
        if choice.is_empty:
            self.scheduler.leave(choice)
            return None
        recorded = self.scheduler.record(choice)
        self.scheduler.adopt(recorded, self.folded(recorded.round))
        check(self.state)
        self.records.append(recorded.round)
        self.recoveries += recorded.round.recoveries
        return recorded.round

    def turns(self) -> list[Recovery]:
        """Turns until nothing more is decided; steps of recoveries that they took.

        Raises:
            AssertionError: It does not end.
        """
        before = len(self.recoveries)
        for _ in range(50):
            if self.turn() is None:
                return self.recoveries[before:]
        raise AssertionError("it does not end")

    def wait(self, wait_ms: int) -> list[Recovery]:
        """Let time pass, and look at what is due."""
        self.now_ms += wait_ms
        return self.turns()

    def run(self, *requests: JobRequest, labels: Mapping[str, str] = PODS_FIRST, **annotations: str) -> None:
        """Let jobs be placed and run, with labels of their PodGroups."""
        for request in requests:
            self.ask(request)
            self.group(request.name, labels, annotations)
        self.turns()
        for request in requests:
            self.bind(request.name)
        self.turns()

    def group(self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        """What the PodGroup of a job says."""
        fact = GroupSeen(
            "default", f"pg-{name}", labels=dict(labels), annotations=dict(annotations or {}), jobs=[name],
            at_ms=self.now_ms,
        )  # fmt: skip
        self.fact(SUBJECTS.fact_group("default", f"pg-{name}"), fact)

    def bind(self, name: str, ranks: Iterable[int] | None = None) -> None:
        """Ranks with a place get pods there, as far as nothing of the old ones is left."""
        holding = holding_of(self.state, name)
        pods = self.pods.setdefault(name, {})
        gone = {*holding.gone, *holding.leaving()}
        for rank, share in enumerate(self.state.owned(holding.key)):
            if rank not in gone and (ranks is None or rank in ranks):
                known = pods.get(rank)
                if known is None or known.step < holding.step_of(rank):
                    pods[rank] = Pod(share.node, share.mask, holding.step)
        self.say(name)
        outcome = OutcomeSeen(
            "default", name, holding.uid, holding.attempt, "bound", bound=len(pods), step=holding.step,
            done=holding.step, at_ms=self.now_ms,
        )  # fmt: skip
        self.fact(SUBJECTS.fact_outcome("default", name), outcome)

    def say(self, name: str) -> None:
        """How the pods of a job are."""
        holding = holding_of(self.state, name)
        pods = sorted(self.pods[name].items())
        nodes = sorted({pod.node for _, pod in pods})
        fact = PodsSeen(
            "default",
            name,
            holding.uid,
            holding.attempt,
            rank=pack([rank for rank, _ in pods], 4),
            nodes=pack_names(nodes),
            node_index=pack([nodes.index(pod.node) for _, pod in pods], 4),
            phase=bytes(pod.phase for _, pod in pods),
            chips=pack([pod.mask for _, pod in pods], 8),
            exit_codes=pack([pod.exit_code for _, pod in pods], 4) if any(pod.exit_code for _, pod in pods) else b"",
            marks=[PodMarks(rank, pod.marks) for rank, pod in pods if pod.marks],
            steps=pack([pod.step for _, pod in pods], 4) if any(pod.step for _, pod in pods) else b"",
            at_ms=self.now_ms,
        )
        self.fact(SUBJECTS.fact_pod("default", name), fact)

    def fail(self, name: str, *ranks: int, exit_code: int = 1) -> None:
        """Containers of pods end with an error."""
        for rank in ranks:
            self.pods[name][rank] = msgspec.structs.replace(
                self.pods[name][rank], phase=PodPhase.FAILED, exit_code=exit_code
            )
        self.say(name)

    def remove(self, name: str) -> None:
        """The pods of all ranks that leave are gone; an attempt that ends loses all of them."""
        holding = holding_of(self.state, name)
        leaving = holding.leaving() if not holding.ending else dict.fromkeys(self.pods[name], 1)
        for rank in leaving:
            known = self.pods[name].get(rank)
            if known is not None:
                known.phase = PodPhase.GONE
        self.say(name)
        for rank in leaving:
            self.pods[name].pop(rank, None)
        if holding.ending:
            outcome = OutcomeSeen("default", name, holding.uid, holding.attempt, "evicted", at_ms=self.now_ms)
            self.fact(SUBJECTS.fact_outcome("default", name), outcome)

    def wait_for_places(self, name: str, *ranks: int) -> None:
        """New pods of these ranks wait, and of no others."""
        uid = self.state.jobs["default", name].uid
        since = self.waits_ms[name] = {
            rank: self.waits_ms.get(name, {}).get(rank, self.now_ms) for rank in sorted(ranks)
        }
        fact = ReplacementsSeen("default", name, uid, pack(since, 4), self.now_ms, pack(since.values(), 8))
        self.fact(SUBJECTS.fact_replacement("default", name), fact)

    def back_up(self, name: str, backups: Mapping[int, str], *, bound: Collection[int] = ()) -> None:
        """These backup pods (uid) exist, by rank, and no others; those of some ranks are bound."""
        uid = self.state.jobs["default", name].uid
        listed = [
            BackupPod(rank, f"{name}-{rank}-hot-0001", backups[rank], is_bound=rank in bound)
            for rank in sorted(backups)
        ]
        fact = ReplacementsSeen("default", name, uid, at_ms=self.now_ms, backups=listed)
        self.fact(SUBJECTS.fact_replacement("default", name), fact)

    def break_chip(self, node: str, mask: int = 1, level: NodeHealth = NodeHealth.OK, sub_healthy: int = 0) -> None:
        """Chips of a node are unhealthy from now on."""
        self.conditions[node] = NodeCondition(
            node, unhealthy=mask, level=level, sub_healthy=sub_healthy, updated_ms=self.now_ms
        )
        self.publish()

    def change(self, node: str, **changes: object) -> None:
        """A node changes."""
        self.nodes[node] = msgspec.structs.replace(self.nodes[node], **changes)
        self.publish()

    def publish(self) -> None:
        """Say all nodes and how they are, with the time: as one domain, or each domain that changed."""
        names = domains(self.nodes.values()) if self.IS_APART else {"all": sorted(self.nodes)}
        for domain in sorted({*names, *self.published}):
            nodes = [self.nodes[name] for name in names.get(domain, ())]
            conditions = [one for name, one in sorted(self.conditions.items()) if name in names.get(domain, ())]
            if self.published.get(domain) == (nodes, conditions):
                continue
            self.published[domain] = (nodes, conditions)
            self.fact(SUBJECTS.fact_node(domain), pack_nodes(domain, nodes, at_ms=self.now_ms))
            self.fact(SUBJECTS.fact_health(domain), pack_health(domain, conditions, at_ms=self.now_ms))

    def lose(self, *nodes: str, way: str = "gone") -> None:
        """Nodes are gone, not ready, or to be left, according to one fact."""
        for name in nodes:
            if way == "gone":
                del self.nodes[name]
            elif way == "evict":
                self.conditions[name] = NodeCondition(name, level=NodeHealth.EVICT, updated_ms=self.now_ms)
            else:
                self.nodes[name] = msgspec.structs.replace(self.nodes[name], ready=False)
        self.publish()

    def node_of(self, name: str, rank: int) -> str:
        """Node of a rank, as the ledger has it."""
        return holding_of(self.state, name).placement.names()[rank]

    def phase(self, name: str) -> str:
        """Phase of a job's gang."""
        return self.state.fold.gangs[self.state.jobs["default", name].uid].phase

    def reloaded(self) -> "FaultCell":
        """The same cell, loaded from a snapshot."""
        other = type(self).__new__(type(self))
        other.state = State(keeps=True)
        other.scheduler = Scheduler(other.state)
        body = decode(self.state.dump(self.scheduler.dump()), SnapshotBody)
        changes, waiting = other.state.load(body)
        assert waiting is not None
        other.scheduler.load(waiting, changes)
        other.nodes, other.conditions, other.requests = dict(self.nodes), dict(self.conditions), self.requests
        other.now_ms = self.now_ms
        other.published = dict(self.published)
        other.pods = {name: dict(pods) for name, pods in self.pods.items()}
        other.waits_ms = {name: dict(waits_ms) for name, waits_ms in self.waits_ms.items()}
        other.records, other.recoveries = [], []
        return other


class CellOfDomains(FaultCell):
    """Nodes below leaf switches and in SuperPoDs, each a domain."""

    IS_APART = True
