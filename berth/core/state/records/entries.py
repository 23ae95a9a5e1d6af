"""Entries of the folded ledger: what is held, what was decided for each gang, and what a record changes of them."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from berth.core.changes import NO_CHANGES, Changes
from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.holding import Holding
from berth.core.state.run_times import RunTimes
from berth.schemas.ledger import Admission
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal

_MINUTE_MS: Final = 60_000
"""Attempts whose pods could not be bound count once in so long, so that a short disturbance does not use them up."""
HOUR_MS: Final = 3_600_000
DISPLACED_MAX: Final = 3_600
"""Most times that are kept of when a gang ended for others."""
_PAUSE_MS: Final = 1_000
"""First pause after such an attempt."""


class GangRecord(msgspec.Struct, gc=False, omit_defaults=True):
    """State of a gang in the ledger."""

    namespace: str
    name: str
    uid: str
    attempt: int = 1
    """Attempt that is placed, or the next one while it waits."""
    phase: str = "waiting"
    """waiting, placed, ending, succeeded, failed, cancelled, vanished or refused for good."""
    refusal: Refusal | None = None
    ledger_seq: int = 0
    facts_seq: int = 0
    at_ms: int = 0
    recovery: Recovery | None = None
    """Newest step of a recovery, of this attempt or one before, without its places: holdings have these."""
    retries_left: int = -1
    """How often failed pods may still restart it; -1: no failed pod has."""
    restarts: int = 0
    """How often it was restarted as a whole, because of a fault or for another gang."""
    bind_failures: int = 0
    """How often its pods could not be bound; attempts that fail within a minute of the first of them count once."""
    bind_failed_ms: int = 0
    """Time of the first failure of the last such minute."""
    retry_ms: int = 0
    """It is not placed before this time, because its pods could not be bound or because of its work; 0: it may be."""
    placed_ms: int = 0
    """Time of the record since which every rank is at its place again; 0 during a recovery."""
    given_back: int = 0
    """How many attempts were given back before any pod was bound: they do not count as tries."""
    displaced_ms: list[int] = []
    """When it ended for others in the last hour, ascending."""
    is_reclaimed: bool = False
    """It has ever ended for a gang of another queue."""

    def record_displacement(self, at_ms: int, *, is_reclaimed: bool) -> None:
        """Note that it ends for another gang."""
        self.displaced_ms = [*(one for one in self.displaced_ms if at_ms - one < HOUR_MS), at_ms][-DISPLACED_MAX:]
        self.is_reclaimed |= is_reclaimed

    def failures_at(self, at_ms: int) -> int:
        """:attr:`bind_failures` if its pods cannot be bound at a time again."""
        is_same = self.bind_failures > 0 and 0 <= at_ms - self.bind_failed_ms < _MINUTE_MS
        return self.bind_failures + (not is_same)

    def record_retry(self, reason: str, at_ms: int, *, has_claims: bool) -> None:
        """Note why an attempt ended that another one follows.

        Args:
            reason: Of the release.
            at_ms: The time.
            has_claims: Claims of its pods were to be bound: the next attempt leaves out what failed, and does not wait.
        """
        self.retry_ms = 0
        if reason != "bind-failed":
            self.bind_failures = self.bind_failed_ms = 0
            return
        failures = self.failures_at(at_ms)
        if failures > self.bind_failures:
            self.bind_failures, self.bind_failed_ms = failures, at_ms
        if not has_claims:
            self.retry_ms = at_ms + max(at_ms - self.bind_failed_ms, _PAUSE_MS)

    def pauses_at(self, at_ms: int) -> bool:
        """Whether it is not placed at a time because of what was a short while before."""
        return self.phase == "waiting" and 0 < self.retry_ms - at_ms <= _MINUTE_MS

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be decided for it."""
        return self.phase not in {"waiting", "placed", "ending"}


class Folded(msgspec.Struct, gc=False):
    """What one record changed."""

    taken: list[Holding] = []
    given_back: list[Holding] = []
    freed: list[tuple[Holding, list[int]]] = []
    """Ranks that gave back what they owned, while others of their attempt hold on."""
    moved: list[Holding] = []
    """Whose ranks leave, have left, or have got places, in place of what ``freed`` says of them."""
    held: list[Held] = []
    """Places that are held from now on: of attempts in ``given_back``, or reserved ones, with what is free of them."""
    unheld: list[Held] = []
    """Places that are held no longer, or no longer as they were."""
    ending: list[Holding] = []
    gangs: list[GangRecord] = []
    admissions: list[Admission] = []
    """PodGroups that are admitted, or wait, from now on."""
    epoch: bool = False
    resumes: bool = False
    """It is an epoch in which gangs wait as they did before."""
    void: str = ""
    """Why the message counts for nothing; empty if it counts."""
    silent: bool = False
    """Shards were missing when it was decided."""
    changes: Changes = NO_CHANGES
    """What it changed in the columns; the scheduler must be given it, where there is one."""

    @property
    def jobs(self) -> list[tuple[str, str]]:
        """Namespaces and names of the jobs whose gang changed, and whose places are held no longer."""
        gangs = [(one.namespace, one.name) for one in self.gangs]
        return [*gangs, *((one.namespace, one.name) for one in self.unheld)]


@dataclass(slots=True)
class Entries:
    """Tables of the folded ledger that rounds change.

    Attributes:
        holdings: What each attempt (uid, attempt) owns.
        gangs: State of each gang, by uid.
        held: Places that are held for a gang (uid) that waits.
        run_times: Run times of jobs that ended.
        admissions: Newest decision on each PodGroup, by uid.
    """

    holdings: dict[tuple[str, int], Holding] = field(default_factory=dict)
    gangs: dict[str, GangRecord] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    run_times: RunTimes = field(default_factory=RunTimes)
    admissions: dict[str, Admission] = field(default_factory=dict)
