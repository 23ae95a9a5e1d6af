"""Gangs that recover, step by step: a state that gets records and facts, pods that live on nodes, and a binder behind.

The pods are what is really there; facts show them only when a step publishes them, and the binder acts on the holding
that it has read last. Places are drawn from the chips that the columns call free, so a chip that the state gives
away too early gets two pods. What each rank owns is counted here again, from the records alone.

Longer than 400 lines because all that acts on a gang shares its pods and its count of what they own.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from berth.core.chips.soft_share_table import ENABLE_LABEL, MEMORY_LABEL
from berth.core.cluster.node_packing import SWITCHES, pack_nodes
from berth.core.scheduling.rules.registry import rules_of
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.holdings.pod_phases import ENDED
from berth.core.state.invariants import check
from berth.core.state.ledger import Folded, Holding
from berth.core.state.lifecycle import examine
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, Leaf, OutcomeSeen, OutcomeState, PodPhase, PodsSeen, RankFailure, TopologySeen
from berth.schemas.fault_facts import BackupPod, ReplacementsSeen
from berth.schemas.ledger import Epoch, Recovery, Release, Round, Settings, Verdict, facts_known
from berth.schemas.message import Message
from berth.schemas.placement import Placement, Run, Share, placement_of
from berth.schemas.recording import Entry
from berth.schemas.recovery import How, Scope
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job, a_node
from tests.support.placed_parts import groups_of

P = PodPhase
NODES: Final = 6
CHIPS: Final = 4
SHARE: Final = Share(50, 1_000, "fixed-share")
RESOURCE: Final = "huawei.com/Ascend910"
Place = tuple[str, tuple[int, ...]]


class Pod(msgspec.Struct):
    """A pod that was bound."""

    place: Place
    step: int
    phase: PodPhase = P.RUNNING
    uid: str = ""
    """Of a backup pod, or one that was."""


_NONE: Final = Pod(("", ()), 0)


class Job(msgspec.Struct):
    """A job, its pods by rank, and what the binder knows of it."""

    name: str
    pods: int
    chips: int
    share: Share | None = None
    affinity: str = ""
    """switch, block, or empty"""
    attempt: int = 1
    real: dict[int, Pod] = {}
    shown: dict[int, Pod] = {}
    """Pods as the last fact showed them."""
    view: Holding | None = None
    """Holding that the binder has read last."""
    failed: dict[int, int] = {}
    """Ranks that the binder could not bind, with the step of their place."""
    cancelled: bool = False
    backups: dict[int, str] = {}
    """Backup pods (uid) that exist, by rank."""
    hot: dict[int, Pod] = {}
    """Those of them that are bound beside the pods of their ranks."""
    made: int = 0
    """Backup pods that were made."""

    @property
    def uid(self) -> str:
        return f"uid-{self.name}"

    @property
    def key(self) -> tuple[str, int]:
        return (self.uid, self.attempt)


class RecoveringGangs:
    """A state with some jobs."""

    def __init__(self, jobs: Sequence[Job], **changes: object) -> None:
        self.settings = Settings(attempts_max=2, **changes)  # type: ignore[arg-type]  # fields
        self.state = State(keeps=True)
        self.jobs = {job.name: job for job in jobs}
        self.to_examine: dict[str, None] = {}
        self.records: list[bytes] = []
        self.facts: list[tuple[str, bytes]] = []
        self.owners: dict[tuple[str, int], dict[int, list[Place]]] = {}
        """Places of each rank, counted from the records: the one that it has, and the reserved one."""
        labels = {ENABLE_LABEL: "true", MEMORY_LABEL: "32G"}
        chips = (1 << CHIPS) - 1
        nodes = [a_node(f"n{number}", chips=chips, allocatable=CHIPS, labels=labels) for number in range(NODES)]
        self.append(Epoch(1, 0, 0, 0, "h", self.settings, rules=rules_of(self.settings)))
        self.fact(pack_nodes("all", nodes), "node.all")
        leaves = [Leaf(f"l{at}", f"l{at}", [f"n{2 * at}", f"n{2 * at + 1}"]) for at in range(NODES // 2)]
        self.fact(TopologySeen(SWITCHES, leaves), f"topology.{SWITCHES}")
        for job in jobs:
            self.job_fact(job)

    def append(self, message: Epoch | Round) -> Folded:
        data = self.state.fold.encoded(message)
        self.records.append(data)
        folded = self.state.apply_record(self.state.fold.head + 1, data)
        assert not folded.void
        self.to_examine.update(folded.changes.gangs_to_examine)
        return folded

    def round(self, **parts: object) -> Folded:
        head = self.state.fold.head
        return self.append(Round(1, head, self.state.facts_seq, 50 + head, head, **parts))  # type: ignore[arg-type]  # fields

    def fact(self, message: Message, kind: str) -> None:
        subject, data = f"berth.c.fact.{kind}", encode(message)
        self.facts.append((subject, data))
        applied = self.state.apply_fact(subject, self.state.facts_seq + 1, data)
        assert applied.error == ""
        self.to_examine.update(applied.changes.gangs_to_examine)

    def job_fact(self, job: Job) -> None:
        seq = self.state.intake_seq + 1
        verdict = "cancelled" if job.cancelled else "accepted"
        request = a_job(job.name, replicas=job.pods, chips=job.chips)
        seen = JobSeen("default", job.name, job.uid, verdict, seq, 1, request=request, after_seq=seq - 1)  # type: ignore[arg-type]  # a literal
        self.fact(seen, f"job.default.{job.name}")

    def publish(self, job: Job) -> None:
        """Show the pods of a job in a fact; of a rank whose pod has ended its backup pod is all that is left."""
        for rank in [rank for rank in job.hot if rank not in job.real or job.real[rank].phase in ENDED]:
            job.real[rank] = job.hot.pop(rank)
        job.shown = {rank: msgspec.structs.replace(pod) for rank, pod in job.real.items()}
        ranks = sorted(job.shown)
        table = sorted({job.shown[rank].place[0] for rank in ranks})
        masks = [sum(1 << chip for chip in job.shown[rank].place[1]) for rank in ranks]
        steps = [job.shown[rank].step for rank in ranks]
        if not ranks:
            return
        fact = PodsSeen(
            "default",
            job.name,
            job.uid,
            job.attempt,
            pack(ranks, 4),
            pack_names(table),
            pack([table.index(job.shown[rank].place[0]) for rank in ranks], 4),
            pack([job.shown[rank].phase for rank in ranks], 1),
            pack(masks, 8),
            steps=pack(steps, 4) if any(steps) else b"",
        )
        self.fact(fact, f"pod.default.{job.name}")

    def outcome(self, job: Job, state: OutcomeState, step: int) -> None:
        failures = [RankFailure(rank, "taken") for rank, of in sorted(job.failed.items()) if of == step]
        seen = OutcomeSeen("default", job.name, job.uid, job.attempt, state, len(job.real), failures, step=step)
        self.fact(seen, f"outcome.default.{job.name}")

    def holding(self, job: Job) -> Holding | None:
        return self.state.fold.holdings.get(job.key)

    def free_places(self, job: Job, count: int, seed: int) -> Placement | None:
        """Places for some pods of a job from what the columns call free; None where there are too few."""
        table, shares = self.state.table, self.state.shares
        free: list[Place] = []
        for number in range(NODES):
            name = f"n{(number + seed) % NODES}"
            row = table.row(name)
            chips = [chip for chip in range(CHIPS) if int(table.free[row]) >> chip & 1]
            if job.share is not None:
                node = shares.nodes.get(row)
                shared = [chip for chip in range(CHIPS) if node is not None and 0 < node.core[chip] <= 50]
                free += [(name, (chip,)) for chip in [*shared, *chips, *chips]]
            else:
                groups = [tuple(chips[at : at + job.chips]) for at in range(0, len(chips), job.chips)]
                free += [(name, group) for group in groups if len(group) == job.chips]
        return self.placement_at(job, free[:count], seed) if len(free) >= count else None

    def placement_at(self, job: Job, chosen: Sequence[Place], seed: int) -> Placement:
        """Pods of a job at some places, with the columns that its affinity has; ``seed`` names the rule."""
        count = len(chosen)
        index = [int(name[1:]) for name, _ in chosen]
        leaves = sorted({f"l{at // 2}" for at in index})
        switch = SwitchPlacement(
            "normal-schema", job.pods, "2.0", "best-fit", leaves,
            pack([leaves.index(f"l{at // 2}") + 1 for at in index], 2), bytes(1 for _ in index),
        )  # fmt: skip
        superpods = sorted({str(at // 3) for at in index})
        blocks = sorted({at // 3 for at in index})
        block = BlockPlacement(
            "a3", 1, blocks, [f"rule-{seed}"] * len(blocks), superpods,
            pack([blocks.index(at // 3) + 1 for at in index], 2),
            pack([superpods.index(str(at // 3)) + 1 for at in index], 2),
        )  # fmt: skip
        return placement_of(
            [name for name, _ in chosen],
            [chips for _, chips in chosen],
            [Run(count, job.chips, 1_000, 512)],
            resource=RESOURCE,
            share=job.share,
            groups=groups_of(switch if job.affinity == "switch" else None, block if job.affinity == "block" else None),
        )

    def place(self, job: Job, seed: int) -> bool:
        """Place a waiting job; whether it had room."""
        gang = self.state.fold.gangs.get(job.uid)
        if job.cancelled or (gang is not None and gang.phase != "waiting"):
            return False
        placement = self.free_places(job, job.pods, seed)
        if placement is None:
            return False
        job.attempt = gang.attempt if gang is not None else 1
        job.real, job.shown, job.view, job.failed = {}, {}, None, {}
        job.backups, job.hot = {}, {}
        self.tell_backups(job)
        self.round(verdicts=[Verdict("default", job.name, job.uid, job.attempt, placement)])
        self.owners[job.key] = {rank: [place] for rank, place in enumerate(places_of(placement))}
        self.check()
        return True

    def recover(
        self,
        job: Job,
        ranks: Sequence[int],
        how: How,
        seed: int,
        *,
        placed: bool,
        scope: Scope = "pod",
        returns: bool = False,
    ) -> Recovery | None:
        """Take a step of a recovery; None where the job cannot have it.

        If it ``returns``, its places are the old ones.
        """
        holding = self.holding(job)
        if holding is None or holding.ending:
            return None
        if how == "place":
            known = {*holding.leaving(), *holding.gone}
            ranks = [rank for rank in ranks if rank in known]
        backups = holding.backups()
        if placed or how == "place":  # ranks with backup pods get no other places
            ranks = [rank for rank in ranks if rank not in backups]
        if scope == "job":
            ranks, placed = range(job.pods), False
        chosen = sorted({rank for rank in ranks if rank < job.pods})
        placement = self.free_places(job, len(chosen), seed) if placed and how != "mark" else None
        if returns and placement is not None and not set(chosen) & set(holding.gone):
            own = places_of(holding.placement)
            placement = self.placement_at(job, [own[rank] for rank in chosen], seed)
        if not chosen or (how == "place" and placement is None):
            return None
        recovery = Recovery(
            "default", job.name, job.uid, job.attempt, holding.step + 1, "CardUnhealthy", "a chip is unhealthy",
            scope, how, chosen, chosen[:1] if how != "place" else [], 40, placement=placement,
        )  # fmt: skip
        gone = set(holding.gone)
        self.round(recoveries=[recovery])
        self._count(job, recovery, gone)
        self.check()
        return recovery

    def _count(self, job: Job, recovery: Recovery, gone: set[int]) -> None:
        owned = self.owners[job.key]
        if recovery.how == "mark":
            return
        backups = self._backups(job)
        if recovery.scope == "job":
            for rank, places in owned.items():
                if rank not in backups:
                    del places[1:]
            return
        for at, rank in enumerate(recovery.ranks):
            places = owned[rank]
            if rank not in gone | backups and (recovery.how != "place" or recovery.placement is not None):
                del places[1:]
            if recovery.placement is not None:
                places.append(places_of(recovery.placement)[at])

    def _backups(self, job: Job) -> set[int]:
        """Ranks of a job for whose backup pods places are reserved."""
        holding = self.holding(job)
        return set(holding.backups()) if holding is not None else set()

    def tell_backups(self, job: Job) -> None:
        """Show the backup pods of a job in a fact."""
        listed = [BackupPod(rank, f"{job.name}-{rank}-hot", job.backups[rank]) for rank in sorted(job.backups)]
        self.fact(ReplacementsSeen("default", job.name, job.uid, backups=listed), f"replacement.default.{job.name}")

    def lose_backup(self, job: Job, rank: int) -> None:
        """The backup pod of a rank is gone, unless it has taken the rank over."""
        if rank in job.backups and (rank in job.hot or job.real.get(rank, _NONE).uid != job.backups[rank]):
            del job.backups[rank]
            job.hot.pop(rank, None)
            self.tell_backups(job)

    def carry_out(self) -> Due:
        """Write what is due."""
        found = examine(self.state, self.to_examine)
        assert not found.set_aside
        for uid in found.settled:
            self.to_examine.pop(uid, None)
        due = found.due
        for release in due.releases:
            self._see_over(release)
        if due:
            self.round(evictions=due.evictions, releases=due.releases)
            for eviction in due.evictions:
                kept = self.state.fold.holdings[eviction.uid, eviction.attempt].backups()
                for rank, places in self.owners[eviction.uid, eviction.attempt].items():
                    if rank not in kept:
                        del places[1:]
            for release in due.releases:
                if release.ranks:
                    for rank in release.ranks:
                        del self.owners[release.uid, release.attempt][rank][1 if release.reason == "backup" else 0]
                else:
                    del self.owners[release.uid, release.attempt]
        self.check()
        return due

    def _see_over(self, release: Release) -> None:
        """See that an attempt that may run is released only if no rank recovers or has a pod that runs."""
        holding = self.state.fold.holdings[release.uid, release.attempt]
        if release.ranks or holding.ending:
            return
        assert not holding.recovers
        job = next(job for job in self.jobs.values() if job.uid == release.uid)
        for rank in set(range(job.pods)) - set(holding.gone):
            pod = job.real.get(rank)
            assert job.failed.get(rank) == 0 or (pod is not None and pod.step == holding.step_of(rank))

    def follow(self, job: Job) -> None:
        """The binder reads the ledger up to its head."""
        holding = self.holding(job)
        job.view = None if holding is None else msgspec.msgpack.decode(msgspec.msgpack.encode(holding), type=Holding)

    def bind(self, job: Job, rank: int, *, fails: bool = False) -> None:
        """The binder binds the pod of a rank, as far as it knows the ledger."""
        view = job.view
        if view is None or view.ending or rank >= job.pods or rank in view.gone or rank in view.leaving():
            return
        step, now = view.step_of(rank), job.real.get(rank)
        if job.failed.get(rank) == step or (now is not None and (now.step == step or now.phase not in ENDED)):
            return
        if now is not None and step == 0:
            return
        if fails:
            if step:
                job.failed[rank] = step
            return
        job.failed.pop(rank, None)
        job.real[rank] = Pod(places_of(view.placement)[rank], step)

    def take_up(self, job: Job) -> bool:
        """The binder says that it has taken up the newest step that it knows, if facts show all that it bound."""
        view = job.view
        if view is None or view.ending or not view.step:
            return False
        for rank in view.leaving():
            pod, shown = job.real.get(rank), job.shown.get(rank)
            if pod is not None and pod.phase not in ENDED and (shown is None or shown.step < pod.step):
                return False
        self.outcome(job, "bound", view.step)
        return True

    def evicted(self, job: Job) -> None:
        """The binder has deleted all pods of an attempt that ends."""
        if job.view is None or not job.view.ending:
            return
        for rank in list(job.hot):
            self.lose_backup(job, rank)
        for pod in job.real.values():
            pod.phase = pod.phase if pod.phase in ENDED else P.GONE
        self.publish(job)
        self.outcome(job, "evicted", job.view.step)

    def check(self) -> None:
        """See that the invariants hold, that columns are those of a recount, and that no pod lost its chips."""
        check(self.state)
        assert set(self.owners) == set(self.state.fold.holdings)
        for key, owned in self.owners.items():
            mine = sorted(place for places in owned.values() for place in dict.fromkeys(places))
            held = sorted((pod.node, pod.chips) for pod in self.state.held_by(key) if pod.pods)
            assert mine == held
        for job in self.jobs.values():
            for rank, pod in (*job.real.items(), *job.hot.items()):
                if pod.phase not in ENDED:
                    assert pod.place in self.owners.get(job.key, {}).get(rank, [])

    def loaded(self) -> State:
        """A state that has read a snapshot of this one."""
        other = State(keeps=True)
        raw = self.state.dump()
        other.load(decode(raw, SnapshotBody))
        check(other)
        assert other.dump() == raw
        return other

    def entries(self) -> list[Entry]:
        """The history as a recording has it."""
        facts = [Entry(at, data, subject) for at, (subject, data) in enumerate(self.facts, start=1)]
        found: list[Entry] = []
        for sequence, data in enumerate(self.records, start=1):
            known = facts_known(data)
            found += [fact for fact in facts if fact.sequence <= known]
            facts = [fact for fact in facts if fact.sequence > known]
            found.append(Entry(sequence, data))
        return [*found, *facts]

    def shard(self) -> State:
        """A shard that got the same messages: all facts before all records."""
        shard = State(owns=lambda _: True)
        for sequence, (subject, data) in enumerate(self.facts, start=1):
            shard.apply_fact(subject, sequence, data)
        for sequence, data in enumerate(self.records, start=1):
            shard.apply_record(sequence, data)
        return shard


def places_of(placement: Placement) -> list[Place]:
    """Node and chips of each rank."""
    return list(zip(placement.names(), placement.chips_by_rank(), strict=True))
