"""Why new pods of recovering jobs, and backup pods, have no place: from the plans of this process, or from statuses.

A plan that finds no place leaves no record. So a dispatcher that has just started has its reasons from the statuses
that are stored, until it plans again.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.core.explain.refusal_text import sentence
from berth.core.faults.examination import Unplaced
from berth.core.state.cell import JobKey, State
from berth.schemas.status import JobStatus

_RANKS: Final = ""
"""Stands for the ranks of a job; everything else is the uid of a backup pod."""


class _Why(NamedTuple):
    words: str
    code: str = ""
    """Code of the refusal; empty for one that was read."""
    step: tuple[str, int, int] | None = None
    """Step of a recovery (uid, attempt, number) that it is about, for one that was read."""


class PlaceRefusals:
    """Reasons by job; for each the ranks that recover have one, and each of its backup pods has."""

    def __init__(self) -> None:
        self._known: dict[JobKey, dict[str, _Why]] = {}

    def note(self, found: Iterable[Unplaced]) -> list[JobKey]:
        """Note what plans found; returns the jobs with news: only another kind of reason is news."""
        changed: list[JobKey] = []
        for one in found:
            key = (one.namespace, one.name)
            known = self._known.setdefault(key, {})
            before = known.get(one.backup)
            if before is None or before.code != one.refusal.code:
                known[one.backup] = _Why(sentence(one.refusal), one.refusal.code)
                changed.append(key)
        return changed

    def learn(self, status: JobStatus, *, is_newer: bool) -> bool:
        """Read the reasons of a status that is stored; returns whether any is new.

        Args:
            status: The status.
            is_newer: It replaces what is known; otherwise only what is not known is taken from it.
        """
        key, recovery = (status.namespace, status.name), status.recovery
        found = {one.uid: _Why(one.refusal) for one in status.backups if one.refusal}
        if recovery is not None and recovery.unplaced and recovery.refusal:
            found[_RANKS] = _Why(recovery.refusal, step=(status.uid, recovery.attempt, recovery.step))
        before = self._known.pop(key, {})
        known = found if is_newer else found | before
        if known:
            self._known[key] = known
        return known != before

    def of(self, state: State, key: JobKey) -> dict[str, str]:
        """Why backup pods (uid) of a job, and its ranks (the empty name), have no place, as far as it is known."""
        known = self._known.get(key)
        if not known:
            return {}
        job = state.jobs.get(key)
        gang = state.fold.gangs.get(job.uid) if job is not None else None
        last = gang.recovery if gang is not None else None
        step = (last.uid, last.attempt, last.step) if last is not None else None
        return {name: why.words for name, why in known.items() if why.step is None or why.step == step}

    def settle(self, key: JobKey, status: JobStatus | None) -> None:
        """Forget the reasons of what does not wait any more.

        Args:
            key: The job.
            status: What it is now; None if it is not there.
        """
        known = self._known.get(key)
        if known is None:
            return
        waiting = {one.uid for one in status.backups} if status is not None else set()
        if status is not None and status.recovery is not None and status.recovery.unplaced:
            waiting.add(_RANKS)
        kept = {name: why for name, why in known.items() if name in waiting}
        if kept:
            self._known[key] = kept
        else:
            del self._known[key]
