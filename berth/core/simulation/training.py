"""Training of simulated jobs under failures and preemption: work that is saved or lost, and times without training.

A job trains while all of its pods run on sound chips. It saves its work after every ``checkpoint_ms`` of training, at
no cost. When a pod breaks, the whole job stops, and the work since its last checkpoint is lost, unless pods that stay
hold a replica of it.
"""

from typing import Final

from berth.core.simulation.timeline import FAILURE, SCOPES, Interruption, JobTraining
from berth.schemas.recovery import Scope

FRUITLESS_MAX: Final = 1_000
"""Failures of a job in a row without a checkpoint between them, after which a simulation gives up."""


class NoProgressError(ValueError):
    """A job breaks again and again before it saves any work, so that the simulation would not end."""


class Training:
    """Training of one job.

    Args:
        namespace: Its namespace.
        name: Its name.
        chips: Its chips.
        work_ms: Training that it needs.
        checkpoint_ms: Training between two checkpoints.
        at_ms: Its first placement.
    """

    def __init__(self, namespace: str, name: str, *, chips: int, work_ms: int, checkpoint_ms: int, at_ms: int) -> None:
        self._namespace, self._name, self._chips = namespace, name, chips
        self._work_ms, self._checkpoint_ms = work_ms, checkpoint_ms
        self._begin_ms = at_ms
        self._saved_ms = 0
        self._since_ms = -1
        """Since when it trains; -1: it does not."""
        self._stopped_ms = -1
        self._lost_ms = 0
        """Work that the open interruption has cost."""
        self._redone_ms = 0
        self._scope: Scope | None = None
        self._cause = FAILURE
        self._fruitless = 0
        self._interruptions: list[Interruption] = []

    @property
    def trains(self) -> bool:
        """Whether it trains."""
        return self._since_ms >= 0

    @property
    def was_stopped(self) -> bool:
        """Whether an interruption is open."""
        return self._stopped_ms >= 0

    @property
    def left_ms(self) -> int:
        """Training that is needed from the last checkpoint on."""
        return self._work_ms - self._saved_ms

    def is_done(self, at_ms: int) -> bool:
        """Whether all of its work is done."""
        return self.trains and self._done(at_ms) >= self._work_ms

    def start(self, at_ms: int, *, keeps_work: bool = False) -> None:
        """It trains from now on.

        Args:
            at_ms: Now.
            keeps_work: The work since its last checkpoint is not lost.
        """
        if self.was_stopped:
            if keeps_work and self._lost_ms:
                self._saved_ms += self._lost_ms
                self._redone_ms -= self._lost_ms
                self._lost_ms = self._fruitless = 0
            self._interruptions.append(self._interruption(at_ms))
            self._stopped_ms, self._lost_ms, self._scope = -1, 0, None
        self._since_ms = at_ms

    def stop(self, at_ms: int, cause: str = FAILURE) -> None:
        """A failure stops it, or its way back to training; or it ends for another job.

        Args:
            at_ms: Now.
            cause: What stops it, see :class:`~berth.core.simulation.timeline.Interruption`.

        Raises:
            NoProgressError: It never gets to a checkpoint.
        """
        done_ms = self._done(at_ms)
        kept_ms = done_ms - done_ms % self._checkpoint_ms
        self._fruitless = 0 if kept_ms > self._saved_ms else self._fruitless + 1
        if self._fruitless > FRUITLESS_MAX:
            raise NoProgressError(
                f"job {self._namespace}/{self._name} was stopped {FRUITLESS_MAX} times in a row before it had trained"
                f" for the {self._checkpoint_ms / 1000:g} s between two checkpoints"
            )
        if not self.trains:
            return
        self._lost_ms = done_ms - kept_ms
        self._redone_ms += self._lost_ms
        self._saved_ms, self._since_ms, self._stopped_ms, self._cause = kept_ms, -1, at_ms, cause

    def widen(self, scope: Scope) -> None:
        """A step of its recovery has this scope."""
        if self._scope is None or SCOPES.index(scope) > SCOPES.index(self._scope):
            self._scope = scope

    def finished(self, at_ms: int, *, is_cancelled: bool = False) -> tuple[JobTraining, list[Interruption]]:
        """What became of it if it ends here: its work is done, it is cancelled, or the simulation is over.

        What it has done is kept.
        """
        found = JobTraining(
            namespace=self._namespace,
            name=self._name,
            chips=self._chips,
            begin_ms=self._begin_ms,
            end_ms=at_ms,
            productive_ms=min(self._done(at_ms), self._work_ms),
            redone_ms=self._redone_ms,
        )
        still_open = [self._interruption(-1, is_cancelled=is_cancelled)] if self.was_stopped else []
        return found, [*self._interruptions, *still_open]

    def _done(self, at_ms: int) -> int:
        return self._saved_ms + (at_ms - self._since_ms if self.trains else 0)

    def _interruption(self, trains_ms: int, *, is_cancelled: bool = False) -> Interruption:
        return Interruption(
            namespace=self._namespace,
            name=self._name,
            chips=self._chips,
            at_ms=self._stopped_ms,
            trains_ms=trains_ms,
            scope=self._scope or "",
            redone_ms=self._lost_ms,
            is_cancelled=is_cancelled,
            cause=self._cause,
        )
