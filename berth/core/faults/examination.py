"""Examination: which placed gangs need a step of a recovery now, and which steps these may be.

It is a function of the state and the moment, so that each reader of the same history finds the same steps.

Longer than 400 lines because all questions about an attempt are asked of one view of it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.changes import JobKey
from berth.core.errors import guarded
from berth.core.faults.diagnosis import GONE, HEALTHY, diagnose, fault_of_place, is_master
from berth.core.faults.escalation import Escalation, Progress, Wanted, acts, backup_for, escalate, growth, place_anew
from berth.core.faults.maintenance import diagnose_drained, drained_since, settings_of_drain
from berth.core.faults.model import JobDiagnosis, NodeView, PodFault, PodFaultKind, PodView
from berth.core.faults.observation import marks_of, node_view, pods_of, rules_for
from berth.core.faults.scopes import GangShape
from berth.core.gangs import Gang
from berth.core.parity import differs
from berth.core.pod_shares import PodShare
from berth.core.pod_shares import pods_of as pods_of_placement
from berth.core.requests.gangs import gang_of, is_unowned
from berth.core.state.cell import State
from berth.core.state.fault_inputs import nodes_of
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.leaving import switched_ranks, vanished_ms
from berth.core.state.holdings.pod_phases import ENDED, next_step, rows_of
from berth.core.state.internal_errors import SetAside
from berth.core.state.kept_places import held_together_ms
from berth.core.state.ledger import GangRecord
from berth.core.state.lost_nodes import MOVE_MS
from berth.core.topologies.registry import topology_of
from berth.schemas.columns import unpack
from berth.schemas.facts import PodPhase
from berth.schemas.fault_facts import BackupPod
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.recovery import DISPLACED
from berth.schemas.refusal import Refusal

SETTLE_MS: Final = 1_000
"""Time after the begin of an epoch in which nodes that are gone or not ready make no pod faulty."""
_RANK_BYTES: Final = 4
_PENDING: Final = PodPhase.PENDING
_OF_NODES: Final = frozenset({PodFaultKind.NODE_UNHEALTHY, PodFaultKind.CARD_UNHEALTHY, PodFaultKind.SUB_HEALTH})


class Unplaced(NamedTuple):
    """A gang whose ranks, or one of whose backup pods, wait for places, and why there are none.

    Attributes:
        backup: The backup pod (uid); empty for ranks.
    """

    namespace: str
    name: str
    refusal: Refusal
    backup: str = ""


class Faulty(NamedTuple):
    """A gang that needs a step of a recovery.

    Attributes:
        gang: The gang, of its request and the attempt that is placed.
        holding: What it holds.
        options: Steps; the first that has what it needs is taken.
        nodes: Nodes of its faulty pods, sorted; those of the recovery before are included while it is under way.
        step: Number of the step.
        cause: Why it would restart as a whole, as limits on restarts count.
        slots: How many may restart for this cause in the turn, if only with places; 0 without a limit.
        grows: Nothing is faulty: ranks that it gave up for others get places, behind all gangs before it.
    """

    gang: Gang
    holding: Holding
    options: tuple[Wanted, ...]
    nodes: tuple[str, ...]
    step: int
    cause: tuple[str, str] = ("", "")
    slots: int = 0
    grows: bool = False


class Examined(NamedTuple):
    """Result of an examination.

    Attributes:
        faulty: Gangs that need a step, in the order of the queue: the first ones get places first.
        again_ms: Gangs (uid) to be looked at again at a time although nothing changes.
        set_aside: Gangs (uid) that could not be examined because of an error.
    """

    faulty: list[Faulty]
    again_ms: Mapping[str, int]
    set_aside: list[SetAside]


def examine_faults(state: State, gangs: Iterable[str], *, at_ms: int) -> Examined:
    """Find the gangs that need a step of a recovery.

    Args:
        state: The cell.
        gangs: Gangs (uid) whose facts or records may require one.
        at_ms: The moment.
    """
    faulty: list[Faulty] = []
    again_ms: dict[str, int] = {}
    set_aside: list[SetAside] = []
    for uid in sorted(gangs):

        def left_out(error: Exception, uid: str = uid) -> None:
            set_aside.append(SetAside(uid, error))

        found = guarded(lambda uid=uid: _examine(state, uid, at_ms), left_out)  # type: ignore[misc]  # the default binds it
        if found is None:
            continue
        if found[0] is not None:
            faulty.append(found[0])
        if found[1]:
            again_ms[uid] = found[1]
    faulty.sort(key=lambda one: one.gang.order)
    return Examined(faulty, again_ms, set_aside)


def _examine(state: State, uid: str, at_ms: int) -> tuple[Faulty | None, int] | None:
    record = state.fold.gangs.get(uid)
    holding = state.fold.holdings.get((uid, record.attempt)) if record is not None else None
    if record is None or holding is None or holding.foreign:
        return None
    if record.phase != "placed" or holding.ending:
        return None, held_together_ms(state.fold, holding, after_ms=at_ms)
    key = (holding.namespace, holding.name)
    job = state.jobs.get(key)
    if job is None or job.uid != uid or job.state != "accepted" or job.request is None:
        return None
    view = _View(state, holding, record, at_ms)
    escalation = view.escalation()
    grows = not escalation.options and view.may_grow
    if grows:
        escalation = escalation._replace(options=growth(holding.given_up, at_ms=at_ms))
    if not escalation.options:
        return None, _first(escalation.again_ms, view.again_ms)
    request = _as_placed(job.request, holding)
    profiles = state.constraints.profiles(holding.namespace, request)
    gang = gang_of(job, request, attempt=holding.attempt, settings=state.fold.settings, profiles=profiles)
    step = next_step(holding, state.pods_seen(holding), state.outcome_of(holding))
    found = Faulty(view.judged(gang), holding, escalation.options, view.nodes, step, grows=grows)
    return found, _first(escalation.again_ms, view.again_ms)


def _as_placed(request: JobRequest, holding: Holding) -> JobRequest:
    """A request for the pods that an attempt was placed with, whatever it asks for by now; more pods stay in it."""
    placement = holding.placement
    asked = [task.chips for task in request.tasks for _ in range(task.replicas)]
    had = [run.chips for run in placement.runs for _ in range(run.pods)]
    is_alike = placement.share is not None or all(one in {0, other} for one, other in zip(had, asked, strict=False))
    if is_alike and len(asked) >= len(had):
        return request
    tasks = [
        Task(f"{number}", run.pods, run.chips, run.cpu_milli, run.memory_mib)
        for number, run in enumerate(placement.runs)
    ]
    return msgspec.structs.replace(request, tasks=tasks)


class _View:
    """What is known of one attempt at a moment."""

    def __init__(self, state: State, holding: Holding, record: GangRecord, at_ms: int) -> None:
        self._state = state
        self._holding = holding
        self._record = record
        self._at_ms = at_ms
        self._key: JobKey = (holding.namespace, holding.name)
        self._group = state.faults.group_of(self._key)
        self._seen = state.pods_seen(holding)
        self._leaving = holding.leaving()
        self._places = places_of(holding)
        self._backups = holding.backups()
        self._rules = rules_for(state, self._key, self._seen, self._group)
        self._has_healthy_nodes: dict[str, bool] = {}
        """Whether nodes of a domain are left, as far as it was asked for."""
        self.again_ms = 0
        """When a node that is not ready counts."""
        self.nodes: tuple[str, ...] = ()

    def escalation(self) -> Escalation:
        """What may be done now."""
        state = self._state
        due_ms = vanished_ms(self._holding, self._seen, state.outcome_of(self._holding))
        if due_ms is not None and due_ms > self._at_ms:
            self.again_ms = _first(self.again_ms, due_ms)
        rules = self._rules
        drained = self._drained_now()
        backup = self._backup_wanted(drained)
        if not (acts(rules) or drained or self._is_draining):
            return Escalation((*place_anew(self._holding.unplaced, at_ms=self._at_ms), *backup))
        pods = self._pods()
        settings = state.fold.settings
        found = JobDiagnosis(rules)
        if acts(rules):
            nodes = self._nodes(list(dict.fromkeys(pod.node for pod in pods)))
            found = diagnose(pods, nodes, rules, size=self._holding.placement.pods())
        progress = self._progress()
        if not found.faults and (drained or (self._is_draining and progress.is_open)):
            found = diagnose_drained(pods, drained, rules)
            settings = settings_of_drain(state, drained)
        if not found.faults and not progress.unplaced:
            return Escalation(backup)
        last = progress.last
        before = last.nodes if last is not None and progress.is_open else ()
        self.nodes = tuple(sorted({*before, *(fault.node for fault in found.faults)}))
        escalation = self._escalated(found, progress, settings)
        if drained and escalation.options and all(one.needs_place for one in escalation.options):
            escalation = self._with_drain(escalation, diagnose_drained(pods, drained, rules), progress)
        return escalation._replace(options=(*escalation.options, *backup))

    @property
    def may_grow(self) -> bool:
        """Whether it gave up ranks for others, and all its other ranks are at their places."""
        holding = self._holding
        return bool(holding.given_up) and not holding.moves and not self._progress().is_open

    def _escalated(self, found: JobDiagnosis, progress: Progress, settings: Settings) -> Escalation:
        return escalate(found, self._shape(), progress, settings, at_ms=self._at_ms, seen_ms=self._seen_ms(found))

    def _with_drain(self, escalation: Escalation, found: JobDiagnosis, progress: Progress) -> Escalation:
        """Steps of a fault that wait for places, and those of a drain, which wait for a time only."""
        settings = settings_of_drain(self._state, [fault.node for fault in found.faults])
        drain = self._escalated(found, progress, settings)
        self.nodes = tuple(sorted({*self.nodes, *(fault.node for fault in found.faults)}))
        return Escalation((*escalation.options, *drain.options), _first(escalation.again_ms, drain.again_ms))

    def _backup_wanted(self, drained: Collection[str]) -> tuple[Wanted, ...]:
        """A place for the first backup pod that needs one, beside a pod of this attempt that is there."""
        holding = self._holding
        backups = self._state.faults.backup_pods(self._key, holding.uid)
        if not backups or self._seen is None:
            return ()
        there = {rank for rank, phase in rows_of(holding, self._seen) if phase not in ENDED}
        there &= set(range(holding.placement.pods())) - {*holding.gone, *self._leaving}
        there -= switched_ranks(holding, self._seen)
        for one in backups:
            if one.rank in there and holding.switched.get(one.rank) != one.uid:
                lost = self._lost_place(one, drained) if one.rank in self._backups else ""
                if lost or one.rank not in self._backups:
                    return (backup_for(one.rank, one.uid, at_ms=self._at_ms, lost=lost),)
        return ()

    def _lost_place(self, backup: BackupPod, drained: Collection[str]) -> str:
        """Why the place of a backup pod cannot be used; empty if it can, or if the pod is there."""
        move, share = self._backups[backup.rank], self._places[backup.rank]
        outcome = self._state.outcome_of(self._holding)
        is_bound = backup.is_bound or (outcome is not None and outcome.done >= move.step)
        if is_bound or move.backup_of(backup.rank) != backup.uid:
            return ""
        why = f"node {share.node} is drained" if share.node in drained else ""
        return why or fault_of_place(share.node, share.mask, self._nodes([share.node])[share.node], self._rules)

    def judged(self, gang: Gang) -> Gang:
        """The gang with the strategy by which its pods are faulty: a node that makes them so must not be a new place.

        The request knows the labels that the PodGroup had when it was made.
        """
        strategy = self._rules.strategy
        if strategy == "ignore" or all(shape.sub_health != "ignore" for shape, _ in gang.request_class):
            return gang
        request_class = tuple(
            (msgspec.structs.replace(shape, sub_health=strategy), pods) for shape, pods in gang.request_class
        )
        return msgspec.structs.replace(gang, request_class=request_class)

    def _drained_now(self) -> dict[str, int]:
        """Nodes of its places that are drained now, and since when; it is looked at again when others are."""
        if not self._state.table.drained_ms:
            return {}
        job = self._state.jobs.get(self._key)
        stays = job is not None and job.request is not None and is_unowned(job.request)
        drained = drained_since(self._state, dict.fromkeys(nodes_of(self._holding)), by_force=stays)
        return {name: since_ms for name, since_ms in drained.items() if self._is_past(since_ms)}

    @property
    def _is_draining(self) -> bool:
        """Whether the newest step of the attempt is one of a drain."""
        last = self._record.recovery
        return last is not None and last.attempt == self._holding.attempt and last.kind == PodFaultKind.DRAIN

    def _pods(self) -> list[PodView]:
        """Pods at the newest places of their ranks; of a rank without one yet, its place itself counts.

        Pods that leave are left out, unless their ranks have places that are reserved for them. So are pods on other
        nodes than their ranks: when such a node changes, nobody looks at the gang.
        """
        holding, seen = self._holding, self._seen
        found: dict[int, PodView] = {}
        owned = self._state.owned(holding.key)
        if seen is not None:
            steps = unpack(seen.steps, _RANK_BYTES) or [0] * len(seen.phase)
            rows = zip(pods_of(self._state, holding, seen), steps, strict=True)
            newest = (pod for pod, step in rows if step >= holding.step_of(pod.rank) and pod.rank < len(owned))
            found = {pod.rank: pod for pod in newest if pod.node == owned[pod.rank].node}
        gone = set(holding.gone)
        for rank in self._leaving.keys() | gone:
            found.pop(rank, None)
        for rank, share in self._places.items():
            if rank in self._backups:
                continue  # its pod runs on, or leaves for its backup pod, which is judged once it has the rank
            found[rank] = PodView(rank, share.node, share.mask, _PENDING)
        for rank in holding.steps:
            if rank not in found and rank not in gone and rank not in self._leaving:
                found[rank] = PodView(rank, owned[rank].node, owned[rank].mask, _PENDING)
        return [found[rank] for rank in sorted(found)]

    def _nodes(self, names: Sequence[str]) -> dict[str, NodeView]:
        """Nodes now, by name; :data:`HEALTHY` where nothing is wrong."""
        table, faults = self._state.table, self._state.faults
        rows = np.fromiter((table.row_of.get(name, -1) for name in names), np.int64, len(names))
        is_ready = np.fromiter((one.ready for one in table.classes), np.bool_, len(table.classes))
        good = (rows >= 0) & table.present[rows]
        good[good] &= is_ready[table.node_class[rows[good]]]
        domains = np.unique(table.domain[rows[good]])
        unhealthy = {name for index in domains.tolist() for name in faults.unhealthy(table.domains[index])}
        rows_good = zip(names, good.tolist(), strict=True)
        return {name: HEALTHY if is_good and name not in unhealthy else self._node(name) for name, is_good in rows_good}

    def _node(self, name: str) -> NodeView:
        """A node now: one that is gone or not ready counts only after a while."""
        state = self._state
        table, faults, settings = state.table, state.faults, state.fold.settings
        row = table.row_of.get(name)
        settled_ms = state.fold.epoch_ms + SETTLE_MS
        if row is None or not table.present[row]:
            return GONE if self._is_past(settled_ms) and self._has_settled(name) else NodeView()
        view = node_view(state, row, faults.condition(name))
        if view.is_unhealthy and not self._has_settled(name):
            view = view._replace(is_unhealthy=False)
        if view.is_ready:
            return view
        lost = faults.lost.get(name)
        since_ms = (lost.unready_ms if lost is not None else 0) or faults.nodes_ms.get(faults.domain(name), 0)
        due_ms = max(settled_ms, since_ms + settings.not_ready_ms if settings.not_ready_ms else 0)
        return view if self._is_past(due_ms) and self._has_settled(name) else view._replace(is_ready=True)

    def _has_settled(self, name: str) -> bool:
        """Whether no further nodes are expected to be lost for the same cause; if not, it is looked at again."""
        settings, faults = self._state.fold.settings, self._state.faults
        lost = faults.lost.get(name)
        if lost is not None and lost.moves:
            return self._is_past(lost.unready_ms + MOVE_MS)
        if lost is None or not settings.fault_settle_ms or not differs(settings).settled_losses:
            return True
        due_ms = faults.lost.settled_ms(name, settings.fault_settle_ms)
        if due_ms > self._at_ms:
            if lost.domain not in self._has_healthy_nodes:
                self._has_healthy_nodes[lost.domain] = faults.has_healthy_nodes(lost.domain)
            if not self._has_healthy_nodes[lost.domain]:
                return True
        return self._is_past(due_ms)

    def _is_past(self, time_ms: int) -> bool:
        """Whether a time has come; if not, the gang is looked at again then."""
        if self._at_ms >= time_ms:
            return True
        self.again_ms = _first(self.again_ms, time_ms)
        return False

    def _progress(self) -> Progress:
        holding, record = self._holding, self._record
        last = record.recovery if record.recovery is not None and record.recovery.attempt == holding.attempt else None
        if last is not None and last.kind in DISPLACED:
            last = None  # nothing of it was faulty
        unplaced = {*holding.unplaced, *(self._leaving.keys() - self._places.keys())}
        unplaced.difference_update(holding.giving_up() if holding.moves else ())
        return Progress(
            last,
            frozenset(self._leaving),
            frozenset(unplaced),
            frozenset(self._unbound() - unplaced),
            holding.step_ms,
            holding.freed_ms,
            self._state.faults.waiting(self._key, holding.uid),
            (self._group.recover_ms or self._group.at_ms) if self._group is not None else 0,
            record.retries_left,
        )

    def _unbound(self) -> set[int]:
        """Ranks with new places whose pods do not show there."""
        seen, holding = self._seen, self._holding
        placed = set(holding.steps) - set(holding.gone)
        if seen is None:
            return placed
        steps = unpack(seen.steps, _RANK_BYTES) or [0] * len(seen.phase)
        rows = zip(unpack(seen.rank, _RANK_BYTES), steps, strict=True)
        return placed - {rank for rank, step in rows if step >= holding.step_of(rank)}

    def _shape(self) -> GangShape:
        """Which pods of the gang belong together."""
        job = self._state.jobs[self._key]
        placement = self._holding.placement
        count = placement.pods()
        marks = marks_of(self._seen) if self._seen is not None else {}
        has_master = is_master(PodView(0, "", marks=marks.get(0, {})))
        if job.request is None or not placement.groups:
            return GangShape(count, has_master=has_master)
        gang = gang_of(job, job.request, attempt=self._holding.attempt, settings=self._state.fold.settings)
        if gang.demand is None:
            return GangShape(count, has_master=has_master)
        together = topology_of(gang.demand).together(gang.demand, placement)
        return GangShape(count, has_master=has_master, **together._asdict())

    def _seen_ms(self, found: JobDiagnosis) -> int:
        """When the newest fault was known."""
        return max((self._fault_ms(fault) for fault in found.faults), default=0)

    def _fault_ms(self, fault: PodFault) -> int:
        faults = self._state.faults
        if fault.kind is PodFaultKind.DRAIN:
            return drained_since(self._state, [fault.node]).get(fault.node, 0)
        if fault.kind in _OF_NODES and (domain := faults.domain(fault.node)):
            condition = faults.condition(fault.node)
            if condition is not None:
                return condition.updated_ms or faults.health_ms(domain)
            return faults.nodes_ms.get(domain, 0)
        return self._seen.at_ms if self._seen is not None else 0


def places_of(holding: Holding) -> dict[int, PodShare]:
    """Places that ranks which leave get then, by rank; for one that returns its own."""
    found: dict[int, PodShare] = {}
    for move in holding.moves:
        if move.placement is not None and move.placed:
            shares = dict(zip(move.ranks, pods_of_placement(move.placement), strict=True))
            found.update((rank, shares[rank]) for rank in move.placed)
    return found


def _first(one_ms: int, other_ms: int) -> int:
    """The earlier of two times, of which 0 is never."""
    return min(filter(None, (one_ms, other_ms)), default=0)
