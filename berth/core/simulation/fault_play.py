"""What happens around the core of a simulated cell when parts of the cluster break, or jobs end for others.

It plays health reports, processes that stop, the binder, and the controllers that make new pods. What leaves, when and
where to, the ledger says.

- A part breaks: health facts say so, and the jobs with pods on it stop training
  (:mod:`berth.core.simulation.training`).
- Pods that leave are gone after ``grace_ms``. Their controllers make new pods after ``recreate_ms``, which are bound as
  soon as they have a place.
- Once all pods of a job run on sound chips it trains again after ``rejoin_ms``, or ``restart_ms`` if all of it was
  placed anew.
- A job about which nothing is decided waits for the repair, and trains again ``restart_ms`` after it.
- A job that ends for another one stops training at once, and its pods are gone after ``grace_ms``: a notice before it
  is not played.
- With ``has_replica`` the work since the last checkpoint is lost only if all of a job was placed anew, or waited for
  the repair.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from berth.core.cluster.node_packing import pack_health
from berth.core.simulation.broken_parts import BrokenParts
from berth.core.simulation.failures import Failure, failures
from berth.core.simulation.fault_plan import LIMITS, STRATEGIES, FaultPlan
from berth.core.simulation.job_facts import BoundPod, outcome_fact, pods_fact
from berth.core.simulation.planned_cluster import SOURCE
from berth.core.simulation.timeline import FAILURE, FaultHistory, Interruption, JobTraining
from berth.core.simulation.training import Training
from berth.core.state.cell import State
from berth.core.state.ledger import Folded, Holding
from berth.schemas.columns import pack
from berth.schemas.facts import OutcomeState
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.recovery import DISPLACED
from berth.schemas.subjects import Subjects
from berth.schemas.workload import PlannedJob


class Stage(NamedTuple):
    """The simulation in which failures are played.

    Attributes:
        state: Its state.
        subjects: Subjects of its cell.
        fact: Applies a fact.
        push: Adds an event: moment, action, and whether it is still valid then.
        end: Ends a job that has done its work: all pods of the attempt have succeeded.
    """

    state: State
    subjects: Subjects
    fact: Callable[[str, Message], None]
    push: Callable[[int, Callable[[], None], Callable[[], bool] | None], None]
    end: Callable[[Holding], None]


class _Life(msgspec.Struct, gc=False):
    """A job that was placed and has not ended."""

    training: Training
    holding: Holding
    pods: dict[int, BoundPod] = {}
    """Pods that are bound, by rank."""
    stayed: set[int] = set()
    """Ranks whose pods are there since it trained."""
    made_ms: dict[int, int] = {}
    """When the new pod of a rank is there."""
    deleted: int = 0
    """Newest step whose pods are being deleted."""
    taken_up: int = 0
    """Newest step whose pods are gone."""
    is_known: bool = False
    """Facts say what runs of it: from its first failure on. Before, they would only make a simulation long."""
    waits_ms: dict[int, int] = {}
    """Since when new pods wait for places, by rank, as facts say."""
    starts: bool = False
    """It will train at a moment that is known."""
    turn: int = 0
    """Count of what made earlier plans for its training void."""


class FaultPlay:
    """Failures and their consequences.

    Args:
        plan: What breaks, and what it costs.
        stage: The simulation.
    """

    def __init__(self, plan: FaultPlan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._state = stage.state
        self._failures: Iterator[Failure] = failures(plan.model, plan.nodes)
        self._next = next(self._failures, None)
        self._broken = BrokenParts(plan.nodes)
        self._lives: dict[str, _Life] = {}
        self._counts: dict[str, int] = {}
        self._jobs: list[JobTraining] = []
        self._interruptions: list[Interruption] = []
        self._pods = 0
        self._now_ms = 0

    @property
    def next_ms(self) -> int | None:
        """Time of the next failure; None if nothing can break."""
        return self._next.at_ms if self._next is not None else None

    @property
    def is_broken(self) -> bool:
        """Whether a part is under repair."""
        return bool(self._broken)

    def until(self, at_ms: int, *, counts: bool) -> None:
        """Play the failures up to a moment; those that do not count are passed over."""
        self._now_ms = at_ms
        while self._next is not None and self._next.at_ms <= at_ms:
            if counts:
                self._break(self._next)
            self._next = next(self._failures, None)

    def follow(self, folded: Folded, planned: Callable[[str], PlannedJob | None], at_ms: int) -> None:
        """Let happen what a record decided.

        Args:
            folded: What it changed.
            planned: Jobs by uid.
            at_ms: Now.
        """
        self._now_ms = at_ms
        for holding in folded.taken:
            job = planned(holding.uid)
            if job is not None:
                self._placed(holding, job)
        for holding in folded.moved:
            life = self._lives.get(holding.uid)
            if life is not None and life.holding is holding and self._is_held(life):
                self._moved(life)

    def forget(self, uid: str, at_ms: int) -> None:
        """A job has ended, or has been cancelled."""
        life = self._lives.pop(uid, None)
        if life is not None:
            if life.is_known:
                self._say_limit(life.holding, gone=True)
            job, stops = life.training.finished(at_ms, is_cancelled=True)
            self._jobs.append(job)
            self._interruptions += stops

    def history(self, at_ms: int) -> FaultHistory:
        """What became of all jobs; jobs that have not ended end here."""
        jobs, interruptions = list(self._jobs), list(self._interruptions)
        for uid in sorted(self._lives):
            job, stops = self._lives[uid].training.finished(at_ms)
            jobs.append(job)
            interruptions += stops
        has_preemption = bool(self._state.fold.settings.preempt)
        return FaultHistory(dict(sorted(self._counts.items())), jobs, interruptions, self._pods, has_preemption)

    def _break(self, failure: Failure) -> None:
        self._counts[failure.part] = self._counts.get(failure.part, 0) + 1
        sound = [uid for uid in sorted(self._lives) if not self._is_broken(self._lives[uid])]
        self._broken.add(failure)
        for uid in sound:
            life = self._lives[uid]
            if not self._is_broken(life):
                continue
            if not life.is_known:
                self._say(life)
            if not life.training.is_done(self._now_ms):
                life.training.stop(self._now_ms)
                life.starts = False
                life.turn += 1
        self._report(failure)
        self._stage.push(failure.repaired_ms, functools.partial(self._repair, failure), None)

    def _repair(self, failure: Failure) -> None:
        self._now_ms = failure.repaired_ms
        self._broken.remove(failure)
        self._report(failure)
        for uid in sorted(self._lives):
            self._get_ready(self._lives[uid], self._plan.restart_ms, is_anew=True)

    def _report(self, failure: Failure) -> None:
        """Facts about the health of the domains in which something changed."""
        names = self._broken.nodes_of(failure)
        faults, table = self._state.faults, self._state.table
        for domain in dict.fromkeys(faults.domain(name) for name in names):
            nodes = sorted(table.names[row] for row in table.rows_of_domain(domain))
            conditions = [self._broken.condition(name) for name in nodes]
            fact = pack_health(domain, conditions, source=SOURCE, at_ms=self._now_ms)
            self._stage.fact(self._stage.subjects.fact_health(domain), fact)

    def _is_broken(self, life: _Life) -> bool:
        """Whether a pod of a job is on broken chips."""
        return any(self._broken.hits(pod.node, pod.mask) for pod in life.pods.values())

    def _is_held(self, life: _Life) -> bool:
        return self._state.fold.holdings.get(life.holding.key) is life.holding

    def _placed(self, holding: Holding, job: PlannedJob) -> None:
        life = self._lives.get(holding.uid)
        if life is None:
            chips = sum(task.replicas * task.chips for task in job.request.tasks)
            training = Training(
                holding.namespace,
                holding.name,
                chips=chips,
                work_ms=job.run_ms,
                checkpoint_ms=self._plan.checkpoint_ms,
                at_ms=self._now_ms,
            )
            life = self._lives[holding.uid] = _Life(training, holding)
        life.holding = holding
        life.deleted = life.taken_up = 0
        life.made_ms = {}
        life.pods = {
            rank: BoundPod(share.node, share.mask, 0) for rank, share in enumerate(self._state.owned(holding.key))
        }
        if self._state.follows_pods or life.training.was_stopped:
            self._say(life)  # where leaves are counted, a job counts there only once it runs
        if life.training.was_stopped:
            self._get_ready(life, self._plan.recreate_ms + self._plan.restart_ms, is_anew=True)
        else:
            self._train(life)

    def _train(self, life: _Life, *, keeps_work: bool = False) -> None:
        life.starts = False
        life.stayed = set(life.pods)
        life.training.start(self._now_ms, keeps_work=keeps_work)
        turn = life.turn
        self._stage.push(
            self._now_ms + life.training.left_ms,
            functools.partial(self._stage.end, life.holding),
            lambda: life.turn == turn and life.training.trains and self._is_held(life),
        )

    def _moved(self, life: _Life) -> None:
        """A step of its recovery was taken, or ranks of it were released."""
        holding = life.holding
        record = self._state.fold.gangs[holding.uid]
        if life.training.trains:  # pods leave although nothing of them is broken
            kind = record.recovery.kind if record.recovery is not None else ""
            life.training.stop(self._now_ms, kind if kind in DISPLACED else FAILURE)
            life.turn += 1
        life.starts = False
        if record.recovery is not None and life.training.was_stopped:
            life.training.widen(record.recovery.scope)
        if life.deleted < holding.step and (holding.ending or holding.leaving()):
            life.deleted = holding.step
            at_ms = self._now_ms + self._plan.grace_ms
            step = holding.step
            gone = (
                functools.partial(self._all_gone, life, holding, at_ms)
                if holding.ending
                else functools.partial(self._gone, life, holding, step, at_ms)
            )
            self._stage.push(at_ms, gone, functools.partial(self._is_held, life))
        if not holding.ending:
            self._fill(life)

    def _all_gone(self, life: _Life, holding: Holding, at_ms: int) -> None:
        """All pods of an attempt that ends are gone."""
        if life.holding is not holding:
            return
        self._now_ms = at_ms
        self._pods += len(life.pods)
        gone, life.pods = life.pods, {}
        self._settle_waiting(life, ())
        self._say(life, gone)
        self._outcome(life, "evicted")

    def _gone(self, life: _Life, holding: Holding, step: int, at_ms: int) -> None:
        """The pods that a step deletes are gone."""
        if life.holding is not holding or holding.ending:
            return
        self._now_ms = at_ms
        gone: dict[int, BoundPod] = {}
        for rank, leaves in sorted(holding.leaving().items()):
            if leaves > step:
                continue
            pod = life.pods.pop(rank, None)
            life.stayed.discard(rank)
            if pod is not None:
                gone[rank] = pod
                life.made_ms[rank] = at_ms + self._plan.recreate_ms
        self._pods += len(gone)
        life.taken_up = max(life.taken_up, step)
        self._say(life, gone)
        self._outcome(life, "bound")
        made_ms = at_ms + self._plan.recreate_ms
        self._stage.push(
            made_ms, functools.partial(self._made, life, holding, made_ms), functools.partial(self._is_held, life)
        )

    def _made(self, life: _Life, holding: Holding, at_ms: int) -> None:
        """Controllers have made new pods."""
        if life.holding is not holding or holding.ending:
            return
        self._now_ms = at_ms
        self._settle_waiting(life, (rank for rank in holding.unplaced if self._is_made(life, rank)))
        self._fill(life)

    def _is_made(self, life: _Life, rank: int) -> bool:
        return life.made_ms.get(rank, 0) <= self._now_ms

    def _settle_waiting(self, life: _Life, ranks: Iterable[int]) -> None:
        """Say which new pods wait for places, if there are or were any."""
        found = sorted(ranks)
        if not found and not life.waits_ms:
            return
        since = life.waits_ms = {rank: life.waits_ms.get(rank, self._now_ms) for rank in found}
        holding = life.holding
        fact = ReplacementsSeen(
            holding.namespace, holding.name, holding.uid, pack(found, 4), self._now_ms, pack(since.values(), 8)
        )
        self._stage.fact(self._stage.subjects.fact_replacement(holding.namespace, holding.name), fact)

    def _fill(self, life: _Life) -> None:
        """Bind new pods whose ranks have places."""
        holding = life.holding
        absent = {*holding.gone, *holding.leaving()}
        bound = False
        for rank, share in enumerate(self._state.owned(holding.key)):
            known = life.pods.get(rank)
            if rank in absent or (known is not None and known.step >= holding.step_of(rank)):
                continue
            if self._is_made(life, rank):
                life.pods[rank] = BoundPod(share.node, share.mask, holding.step_of(rank))
                bound = True
        if bound:
            self._say(life)
            self._outcome(life, "bound")
            self._settle_waiting(life, (rank for rank in holding.unplaced if self._is_made(life, rank)))
        self._get_ready(life, self._plan.rejoin_ms, is_anew=False)

    def _get_ready(self, life: _Life, wait_ms: int, *, is_anew: bool) -> None:
        """If all pods run on sound chips again, the job trains after a while.

        Args:
            life: The job.
            wait_ms: The while.
            is_anew: All of its pods start, and none holds what another did.
        """
        holding = life.holding
        if (
            life.training.trains
            or life.starts
            or holding.ending
            or holding.recovers
            or not self._is_held(life)
            or len(life.pods) < holding.placement.pods() - len(holding.given_up)
            or any(pod.step < holding.step_of(rank) for rank, pod in life.pods.items())
            or self._is_broken(life)
        ):
            return
        life.starts = True
        life.turn += 1
        turn, at_ms = life.turn, self._now_ms + wait_ms
        keeps_work = self._plan.has_replica and bool(life.stayed) and not is_anew

        def train() -> None:
            self._now_ms = at_ms
            self._train(life, keeps_work=keeps_work)

        self._stage.push(at_ms, train, lambda: life.turn == turn and life.starts and self._is_held(life))

    def _say(self, life: _Life, gone: dict[int, BoundPod] | None = None) -> None:
        """What is known of the pods of a job: those that run, and those that are gone."""
        if not life.is_known:
            life.is_known = True
            self._say_limit(life.holding)
        holding, steering = life.holding, STRATEGIES[self._plan.strategy]
        fact = pods_fact(holding, life.pods, gone or {}, steering=steering, at_ms=self._now_ms)
        self._stage.fact(self._stage.subjects.fact_pod(holding.namespace, holding.name), fact)

    def _say_limit(self, holding: Holding, *, gone: bool = False) -> None:
        """What the PodGroup of a job says about faults, if anything."""
        limits = LIMITS.get(self._plan.strategy)
        if limits is None:
            return
        namespace, name = holding.namespace, holding.name
        fact = GroupSeen(namespace, name, gone=gone, annotations=limits, jobs=[name], at_ms=self._now_ms)
        self._stage.fact(self._stage.subjects.fact_group(namespace, name), fact)

    def _outcome(self, life: _Life, state: OutcomeState) -> None:
        """What the binder has done."""
        holding = life.holding
        bound, step = len(life.pods), life.taken_up
        fact = outcome_fact(holding, state, bound=bound, step=step, at_ms=self._now_ms)
        self._stage.fact(self._stage.subjects.fact_outcome(holding.namespace, holding.name), fact)
