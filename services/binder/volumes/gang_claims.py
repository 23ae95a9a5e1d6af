"""Claims of gangs: all claims of a placed gang are bound before any of its pods is, or none of its pods is.

A gang whose claims are not bound yet waits without holding up others. It continues when a fact shows that one of its
claims has changed, and is checked now and then in any case: facts may be late.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from berth.core.text import pluralize
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.schemas.placement import ClaimVolume
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import ClaimSeen
from berth.services.binder.cluster import Gang, NotYetError
from berth.services.binder.volumes.claim_binding import ClaimBinding
from berth.services.binder.volumes.claim_failures import ClaimFailures
from berth.services.binder.volumes.judgement import Judgement, Wanted
from berth.services.binder.work import AttemptKey

FIRST_CHECK_S: Final = 0.5
"""First pause before all claims of a gang that waits are looked at again, whatever facts say: a claim that changes and
changes back at once has no fact. The pause doubles ..."""
CHECK_S: Final = 5.0
"""... up to this."""
LATE_S: Final = 5.0
"""A gang whose claims are not bound after this time is reported."""


@dataclass(slots=True)
class _Progress:
    """Claims of an attempt.

    Attributes:
        step: Newest step of the recovery of the gang when it began; 0 for none.
        began_s: Time of the first look.
        check_s: Time at which all claims are to be looked at again.
        pause_s: Pause before that.
        open: Claims that are not bound.
        due: Those that are to be looked at.
        failures: Reasons by rank, when some claim failed: no pod is bound then.
        is_reported: It was reported that the claims are late.
        is_taken_back: What was written was taken back.
    """

    step: int
    began_s: float
    check_s: float
    open: dict[ClaimVolume, None]
    due: dict[ClaimVolume, None]
    pause_s: float = FIRST_CHECK_S
    failures: dict[int, str] = field(default_factory=dict)
    is_reported: bool = False
    is_taken_back: bool = False


class GangClaims:
    """Claims of the gangs that are being bound.

    Args:
        binding: Requests to the API server.
        clock: Source of time.
        timeout_s: How long the claims of a gang may take to be bound.

    Attributes:
        failures: What claims are not tried with again.
    """

    def __init__(self, binding: ClaimBinding, clock: Clock, *, timeout_s: float) -> None:
        self._binding = binding
        self._clock = clock
        self._timeout_s = timeout_s
        self._progress: dict[AttemptKey, _Progress] = {}
        self._users: dict[ClaimName, dict[AttemptKey, None]] = {}
        """Attempts that wait for a claim."""
        self.failures = ClaimFailures()

    def take_claim(self, fact: ClaimSeen) -> list[AttemptKey]:
        """Take the state of a claim; returns the attempts that wait for it."""
        self.failures.take_claim(fact)
        keys = list(self._users.get(ClaimName(fact.namespace, fact.name), ()))
        for key in keys:
            progress = self._progress[key]
            progress.due.update((claim, None) for claim in progress.open if claim.claim == fact.name)
        return keys

    def forget(self, key: AttemptKey) -> None:
        """An attempt has ended."""
        self._progress.pop(key, None)
        for name in [name for name, keys in self._users.items() if key in keys]:
            self._release(name, key)

    def _release(self, name: ClaimName, key: AttemptKey) -> None:
        keys = self._users.get(name, {})
        keys.pop(key, None)
        if not keys:
            self._users.pop(name, None)

    async def bind(self, gang: Gang) -> dict[int, str]:
        """Do the next steps for the claims of a gang.

        Returns:
            Failures by rank; none when all claims are bound.

        Raises:
            NotYetError: Some are not bound yet.
            TransientError: The API server did not answer for some of them.
        """
        progress = self._progress.get(gang.key)
        if progress is None or progress.step != gang.step:
            self.forget(gang.key)
            progress = self._begin(gang)
        if progress.failures or not progress.open:
            return progress.failures
        now_s = self._clock.monotonic_s()
        if now_s >= progress.check_s:
            progress.due = dict(progress.open)
            progress.pause_s = min(2 * progress.pause_s, CHECK_S)
            progress.check_s = now_s + progress.pause_s
        errors = await self._bind_due(gang, progress)
        if progress.failures or not progress.open:
            return progress.failures
        now_s = self._clock.monotonic_s()
        left_s = progress.began_s + self._timeout_s - now_s
        if left_s <= 0:
            self._time_out(gang, progress, errors)
            return progress.failures
        for error in errors.values():
            raise error
        wait_s = min(left_s, max(progress.check_s - now_s, 0.0))
        raise NotYetError(f"{pluralize(len(progress.open), 'claim')} not bound yet", retry_after_s=wait_s)

    def newly_late(self, gang: Gang) -> dict[int, str]:
        """What a gang has waited for since :data:`LATE_S`, by rank; only once for each attempt."""
        progress = self._progress.get(gang.key)
        if progress is None or progress.is_reported or self._clock.monotonic_s() < progress.began_s + LATE_S:
            return {}
        progress.is_reported = True
        return {
            one.claim.rank: f"claim {one.claim.claim} is not bound yet to {_sought(one)}"
            for one in _wanted(gang, progress.open)
        }

    def _begin(self, gang: Gang) -> _Progress:
        now_s = self._clock.monotonic_s()
        # Claims of ranks that run, or are over, are of no concern to those that recover.
        ranks = set(gang.ranks()) if gang.recovers else set(range(gang.placement.pods()))
        claims = dict.fromkeys(claim for claim in gang.placement.claims if claim.rank in ranks)
        progress = self._progress[gang.key] = _Progress(gang.step, now_s, now_s + FIRST_CHECK_S, claims, dict(claims))
        names = gang.placement.names()
        for claim in claims:
            self._users.setdefault(ClaimName(gang.namespace, claim.claim), {})[gang.key] = None
            reason = self.failures.failure(gang.namespace, claim, names[claim.rank])
            if reason:
                progress.failures[claim.rank] = reason
        return progress

    async def _bind_due(self, gang: Gang, progress: _Progress) -> dict[ClaimVolume, TransientError]:
        """Do the next step for the claims that are due, all at once; returns those that got no answer."""
        due, progress.due = progress.due, {}
        errors: dict[ClaimVolume, TransientError] = {}
        async with asyncio.TaskGroup() as group:
            for wanted in _wanted(gang, due):
                group.create_task(self._bind_one(gang, progress, wanted, errors), name="bind claim")
        progress.due.update(dict.fromkeys(errors))
        return errors

    async def _bind_one(
        self, gang: Gang, progress: _Progress, wanted: Wanted, errors: dict[ClaimVolume, TransientError]
    ) -> None:
        try:
            found = await self._binding.bind(wanted)
        except TransientError as error:
            errors[wanted.claim] = error
            return
        if found.state == "bound":
            progress.open.pop(wanted.claim, None)
            self._release(ClaimName(gang.namespace, wanted.claim.claim), gang.key)
        elif found.state == "failed":
            self._fail(progress, wanted, found)

    def _fail(self, progress: _Progress, wanted: Wanted, failed: Judgement) -> None:
        progress.failures.setdefault(wanted.claim.rank, failed.reason)
        self.failures.add(wanted, failed)

    def _time_out(self, gang: Gang, progress: _Progress, errors: dict[ClaimVolume, TransientError]) -> None:
        for wanted in _wanted(gang, progress.open):
            claim = wanted.claim
            reason = f"claim {claim.claim} was not bound to {_sought(wanted)} within {self._timeout_s:g} s"
            error = errors.get(claim)
            if error is not None:  # the server, not the node or the volume, is the reason
                self._fail(progress, wanted, Judgement("failed", f"{reason}: {error.reason}"))
            else:
                self._fail(progress, wanted, Judgement("failed", reason, "volume" if claim.volume else "node"))

    async def take_back(self, gang: Gang) -> None:
        """Take back what was written for the claims of an attempt that are not bound.

        Raises:
            TransientError: The API server did not answer for some of them.
        """
        progress = self._progress.get(gang.key)
        if not gang.placement.claims or (progress is not None and progress.is_taken_back):
            return
        errors: list[TransientError] = []
        async with asyncio.TaskGroup() as group:
            for wanted in _wanted(gang, gang.placement.claims):
                group.create_task(self._take_back(wanted, errors), name="take claim back")
        if errors:
            raise errors[0]
        if progress is not None:
            progress.is_taken_back = True

    async def _take_back(self, wanted: Wanted, errors: list[TransientError]) -> None:
        try:
            await self._binding.take_back(wanted)
        except TransientError as error:
            errors.append(error)


def _wanted(gang: Gang, claims: Iterable[ClaimVolume]) -> list[Wanted]:
    names = gang.placement.names()
    mark = f"{gang.uid}/{gang.attempt}"
    return [Wanted(gang.namespace, claim, names[claim.rank], mark) for claim in claims]


def _sought(wanted: Wanted) -> str:
    return f"volume {wanted.claim.volume}" if wanted.claim.volume else f"a volume for node {wanted.node}"
