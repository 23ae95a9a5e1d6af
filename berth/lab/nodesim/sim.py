"""Pods of a simulated cluster: their nodes and run times. Pure: events and times in, effects out.

The simulation trusts no scheduler: it keeps its own account of chips, CPU and memory, refuses what does not fit, and
counts every chip that was given twice.
"""

import heapq
from dataclasses import dataclass
from typing import Final, TypeAlias

from berth.lab.nodesim.accounts import Accounts
from berth.lab.nodesim.gangs import LIVE, GangKey, Restored, SimGang, SimPod, gang_of, pods_fact, uses_of
from berth.lab.nodesim.sim_nodes import SimNodes
from berth.schemas.facts import PodPhase, PodsSeen, RankFailure
from berth.schemas.simulation import BindGang, EvictGang, GangBound, GangEvicted, SimCounts
from berth.schemas.units import UnixMs

ENDED_KEPT_MAX: Final = 10_000
"""Number of ended gangs that are kept, so that a repeated request gets the same answer."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class PodsChanged:
    """Publish the fact about a gang's pods."""

    seen: PodsSeen


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer the request."""

    message: GangBound | GangEvicted


@dataclass(frozen=True, slots=True)
class Alarmed:
    """Report a placement that does not fit."""

    gang: BindGang
    failures: list[RankFailure]


Event: TypeAlias = BindGang | EvictGang | Restored | Ticked
SimEffect: TypeAlias = PodsChanged | Answered | Alarmed


class Sim:
    """Simulated pods.

    Args:
        sim_nodes: The nodes on which they run.
        run_default_ms: Run time of pods whose request does not state one.
        terminating_ms: Time that an evicted pod takes to end.
    """

    def __init__(self, sim_nodes: SimNodes, *, run_default_ms: int, terminating_ms: int) -> None:
        self._sim_nodes = sim_nodes
        self._run_default_ms = run_default_ms
        self._terminating_ms = terminating_ms
        self._accounts = Accounts(sim_nodes.nodes)
        self._gangs: dict[GangKey, SimGang] = {}
        self._ended: dict[GangKey, None] = {}
        self._due: list[tuple[UnixMs, GangKey]] = []
        self._bound = self._failed = self._over = 0

    def step(self, event: Event, now_ms: UnixMs) -> list[SimEffect]:
        """Take an event at a moment; returns the effects."""
        match event:
            case BindGang():
                return self._bind(event, now_ms)
            case EvictGang():
                return self._evict(event, now_ms)
            case Restored():
                return self._restore(event, now_ms)
            case Ticked():
                return self._tick(now_ms)

    def next_due_ms(self) -> UnixMs | None:
        """Time at which the next pods finish or are gone; None for never."""
        return self._due[0][0] if self._due else None

    def counts(self) -> SimCounts:
        """Counts so far."""
        live = [gang for gang in self._gangs.values() if gang.live]
        return SimCounts(
            nodes=len(self._sim_nodes.nodes),
            gangs_live=len(live),
            pods_live=sum(len(gang.pods) for gang in live),
            chips_held=self._accounts.chips_held(),
            pods_bound=self._bound,
            pods_failed=self._failed,
            pods_ended=self._over,
            double_allocations=self._accounts.double_allocations,
            overcommits=self._accounts.overcommits,
        )

    def _bind(self, event: BindGang, now_ms: UnixMs) -> list[SimEffect]:
        key = (event.namespace, event.name)
        known = self._gangs.get(key)
        ranks = event.placement.pods()
        if known is not None:
            if (known.uid, known.attempt) == (event.uid, event.attempt):
                return [Answered(known.answer)]
            if known.live:
                return [Answered(GangBound(0, retry_after_ms=max(self._terminating_ms, 1)))]
            if known.uid == event.uid and known.attempt > event.attempt:
                return [Answered(_refused(ranks, f"attempt {known.attempt} came first"))]
        doubles, overcommits = self._accounts.double_allocations, self._accounts.overcommits
        pods, failures = self._take(event, now_ms)
        self._bound += len(pods)
        self._failed += len(failures)
        gang = SimGang(
            namespace=event.namespace,
            name=event.name,
            uid=event.uid,
            attempt=event.attempt,
            size=ranks,
            resource=event.placement.resource,
            pods=pods,
            answer=GangBound(len(pods), failures),
        )
        self._gangs[key] = gang
        self._ended.pop(key, None)
        effects: list[SimEffect] = []
        if (doubles, overcommits) != (self._accounts.double_allocations, self._accounts.overcommits):
            effects.append(Alarmed(event, failures))
        if pods:
            self._wake(gang, now_ms + (event.run_ms or self._run_default_ms))
            effects.append(PodsChanged(pods_fact(gang, now_ms)))
        else:
            self._end(gang)
        return [*effects, Answered(gang.answer)]

    def _take(self, event: BindGang, now_ms: UnixMs) -> tuple[list[SimPod], list[RankFailure]]:
        pods: list[SimPod] = []
        failures: list[RankFailure] = []
        for rank, use in enumerate(uses_of(event.placement)):
            known = use.node in self._sim_nodes.nodes
            broken = self._sim_nodes.condition(use.node, now_ms).unhealthy & use.chips if known else 0
            reason = f"chips {_listed(broken)} of the node are unhealthy" if broken else self._accounts.take(use)
            if reason:
                failures.append(RankFailure(rank, reason))
            else:
                pods.append(SimPod(rank, use))
        return pods, failures

    def _evict(self, event: EvictGang, now_ms: UnixMs) -> list[SimEffect]:
        key = (event.namespace, event.name)
        gang = self._gangs.get(key)
        if gang is not None and (gang.uid, gang.attempt) == (event.uid, event.attempt):
            gang.evicted = True
            if not gang.live:
                return [PodsChanged(pods_fact(gang, now_ms)), Answered(GangEvicted(0))]
            running = [pod for pod in gang.pods if pod.phase == PodPhase.RUNNING]
            if not running:
                return [Answered(GangEvicted(len(gang.pods)))]
            for pod in running:
                pod.phase = PodPhase.TERMINATING
            self._wake(gang, now_ms + self._terminating_ms)
            return [PodsChanged(pods_fact(gang, now_ms)), Answered(GangEvicted(len(running)))]
        if gang is not None and gang.live:
            return [Answered(GangEvicted(0))]  # the name belongs to other pods; no fact may replace theirs
        none = PodsSeen(event.namespace, event.name, event.uid, event.attempt, at_ms=now_ms)
        return [PodsChanged(none), Answered(GangEvicted(0))]

    def _restore(self, event: Restored, now_ms: UnixMs) -> list[SimEffect]:
        seen = event.seen
        gang = gang_of(event)
        if gang.key in self._gangs:
            return []
        lost = [pod for pod in gang.pods if pod.phase in LIVE and self._accounts.take(pod.use)]
        for pod in lost:
            pod.phase = PodPhase.GONE
        self._gangs[gang.key] = gang
        gang.evicted = terminating = any(pod.phase == PodPhase.TERMINATING for pod in gang.pods)
        if not any(pod.phase in LIVE for pod in gang.pods):
            self._end(gang)
        else:
            lasts_ms = self._terminating_ms if terminating else event.run_ms or self._run_default_ms
            self._wake(gang, seen.at_ms + lasts_ms)
        return [PodsChanged(pods_fact(gang, now_ms))] if lost else []

    def _tick(self, now_ms: UnixMs) -> list[SimEffect]:
        effects: list[SimEffect] = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, key = heapq.heappop(self._due)
            gang = self._gangs.get(key)
            if gang is None or not gang.live or gang.due_ms != due_ms:
                continue
            for pod in gang.pods:
                if pod.phase in LIVE:
                    pod.phase = PodPhase.GONE if pod.phase == PodPhase.TERMINATING else PodPhase.SUCCEEDED
                    self._accounts.release(pod.use)
                    self._over += 1
            self._end(gang)
            effects.append(PodsChanged(pods_fact(gang, now_ms)))
        return effects

    def _wake(self, gang: SimGang, due_ms: UnixMs) -> None:
        gang.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, gang.key))

    def _end(self, gang: SimGang) -> None:
        gang.live = False
        self._ended[gang.key] = None
        while len(self._ended) > ENDED_KEPT_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._gangs[oldest]


def _refused(ranks: int, reason: str) -> GangBound:
    return GangBound(0, [RankFailure(rank, reason) for rank in range(ranks)])


def _listed(mask: int) -> str:
    return ", ".join(str(chip) for chip in range(mask.bit_length()) if mask >> chip & 1)
