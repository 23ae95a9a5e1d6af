"""Events of the jobs of a round: what each of its entries means for a program."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from berth.core.events.change import Change
from berth.core.explain.refusal_text import sentence, within
from berth.core.state.cell import State
from berth.core.state.ledger import GangRecord, Holding, pods_of
from berth.schemas.ledger import Eviction, Recovery, Release, Round, Verdict
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.replies import Rank

_LEAVING: Final = frozenset({"grace", "force", "mark"})
_ENDS: Final = {"succeeded": "succeeded", "cancelled": "cancelled"}


class GangBefore(NamedTuple):
    """A gang before a round."""

    namespace: str
    name: str
    attempt: int
    reason: str
    """Code of the refusal for which it waits; empty if it does not."""
    step: int
    """Newest step of a recovery in the attempt; 0 for none."""

    @classmethod
    def of(cls, gang: GangRecord) -> "GangBefore":
        """Copy of what events depend on: the fold changes its gangs in place."""
        recovery = gang.recovery
        step = recovery.step if recovery is not None and recovery.attempt == gang.attempt else 0
        return cls(gang.namespace, gang.name, gang.attempt, gang.refusal.code if gang.refusal is not None else "", step)


def round_events(state: State, record: Round, sequence: int, before: Mapping[str, GangBefore]) -> list[JobEvent]:
    """Events of a round, in the order of its entries: verdicts, recoveries, evictions, releases.

    Pods of other schedulers, which the ledger only adopts, have no events.

    Args:
        state: The state after the round.
        record: The round.
        sequence: Its sequence.
        before: Its gangs (uid) before it, as far as there were any.
    """
    maker = _Maker(state, record, sequence, before)
    found: list[JobEvent | None] = [maker.verdict(one) for one in record.verdicts]
    for recovery in record.recoveries:
        found += maker.recovery(recovery)
    found += [maker.eviction(one) for one in record.evictions]
    found += [maker.release(one) for one in record.releases]
    return [one for one in found if one is not None]


class _Maker:
    def __init__(self, state: State, record: Round, sequence: int, before: Mapping[str, GangBefore]) -> None:
        self._state = state
        self._at_ms = record.at_ms
        self._sequence = sequence
        self._before = before

    def verdict(self, verdict: Verdict) -> JobEvent | None:
        """A placement, or why there is none, unless the gang waited in this attempt for the same reason before."""
        about = Change(verdict.namespace, verdict.name, verdict.uid, verdict.attempt)
        if verdict.placement is not None:
            pods = pods_of(verdict.placement)
            ranks = [Rank(rank=rank, node=pod.node, chips=list(pod.chips)) for rank, pod in enumerate(pods)]
            return self._event(about, "placed", ranks=ranks)
        if verdict.refusal is None:
            return None
        # Whoever may read the namespace of the job reads its events.
        code, words = verdict.refusal.code, within(sentence(verdict.refusal), verdict.refusal, verdict.namespace)
        if verdict.final:
            return self._event(about, "failed", code=code, words=words)
        before = self._before.get(verdict.uid)
        if before is None or before.attempt != verdict.attempt:
            return self._event(about, "waiting", code=code, words=words)
        if before.reason == code:
            return None  # it goes on waiting, maybe with other numbers
        is_further = bool(before.reason) or verdict.attempt > 1  # the end of the attempt before was the first reason
        return self._event(about, "waiting", code=code, words=words, is_further=is_further)

    def recovery(self, recovery: Recovery) -> list[JobEvent | None]:
        """Ranks leave, or they or their backup pods get places."""
        about = Change(recovery.namespace, recovery.name, recovery.uid, recovery.attempt, recovery.step)
        found: list[JobEvent | None] = []
        if recovery.how in _LEAVING:
            found.append(self._event(about, "recovering", code=recovery.kind, words=recovery.cause))
        holding = self._state.fold.holdings.get((recovery.uid, recovery.attempt))
        moves = recovery.how != "backup" and recovery.scope != "job"
        if recovery.placement is not None and moves and holding is not None:
            found.append(self._event(about, "placed", code=recovery.kind, ranks=_places(holding)))
        if recovery.placement is not None and recovery.how == "backup":
            pods = zip(recovery.ranks, pods_of(recovery.placement), strict=True)
            ranks = [Rank(rank=rank, node=pod.node, chips=list(pod.chips)) for rank, pod in pods]
            found.append(self._event(about, "backup", code=recovery.kind, words=recovery.cause, ranks=ranks))
        return found

    def eviction(self, eviction: Eviction) -> JobEvent | None:
        """Pods are being deleted."""
        before = self._before.get(eviction.uid)
        if before is None:
            return None
        about = Change(before.namespace, before.name, eviction.uid, eviction.attempt, before.step)
        return self._event(about, "ending", code=eviction.reason)

    def release(self, release: Release) -> JobEvent | None:
        """An attempt is over."""
        before = self._before.get(release.uid)
        if before is None or release.ranks or release.reason == "backup":
            return None
        about = Change(before.namespace, before.name, release.uid, release.attempt, before.step)
        if release.again:
            return self._event(about._replace(attempt=release.attempt + 1, step=0), "waiting", code=release.reason)
        return self._event(about, _ENDS.get(release.reason, "failed"), code=release.reason)

    def _event(
        self,
        about: Change,
        phase: str,
        *,
        code: str = "",
        words: str = "",
        ranks: list[Rank] | None = None,
        is_further: bool = False,
    ) -> JobEvent:
        event = about.event(
            phase,
            job=self._state.jobs.get((about.namespace, about.name)),
            at_ms=self._at_ms,
            source=("ledger", self._sequence),
            code=code,
            words=words,
            is_further=is_further,
        )
        return event if ranks is None else msgspec.structs.replace(event, ranks=ranks)


def _places(holding: Holding) -> list[Rank]:
    """Newest place of each rank; ranks without one are left out."""
    places = {rank: (pod.node, pod.chips) for rank, pod in enumerate(pods_of(holding.placement))}
    for rank in (*holding.gone, *holding.leaving()):
        places.pop(rank, None)
    for move in holding.moves:
        if move.placement is not None and move.how != "backup":
            shares = dict(zip(move.ranks, pods_of(move.placement), strict=True))
            places.update((rank, (shares[rank].node, shares[rank].chips)) for rank in move.placed)
    return [Rank(rank=rank, node=places[rank][0], chips=list(places[rank][1])) for rank in sorted(places)]
