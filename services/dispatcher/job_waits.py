"""How long jobs wait for their first placement, for the metrics."""

import math
from typing import Final

from berth.core.scheduling.queue import Queue
from berth.core.state.cell import State
from berth.runtime.clock import Clock
from berth.schemas.ledger import Round
from berth.services.dispatcher.metrics import DispatcherMetrics

_LOOK_S: Final = 10.0
_JOBS_PER_S: Final = 2_000
"""Pause between two looks at all waiting jobs: so long, and longer when very many wait."""
_MS: Final = 1000


class JobWaits:
    """Measures waiting times from the acceptance of a job.

    Args:
        clock: Of the process.
        state: Of the dispatcher.
        metrics: Of the dispatcher.
    """

    def __init__(self, clock: Clock, state: State, metrics: DispatcherMetrics) -> None:
        self._clock = clock
        self._state = state
        self._metrics = metrics
        self._looked_s = -math.inf

    def observe_placements(self, record: Round) -> None:
        """Observe the first placements in an appended round."""
        for verdict in record.verdicts:
            if verdict.placement is not None and verdict.attempt == 1:
                accepted_ms = self._accepted_ms(verdict.namespace, verdict.name)
                if accepted_ms:
                    self._metrics.admission.observe(max(0, record.at_ms - accepted_ms) / _MS)

    def measure(self, queue: Queue) -> None:
        """Measure the oldest waiting job, unless that was done a moment ago."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < max(_LOOK_S, len(queue) / _JOBS_PER_S):
            return
        self._looked_s = now_s
        known = (self._accepted_ms(gang.namespace, gang.name) for gang in queue.gangs())
        oldest_ms = min((at_ms for at_ms in known if at_ms), default=None)
        age_s = 0.0 if oldest_ms is None else max(0, self._clock.now_ms() - oldest_ms) / _MS
        self._metrics.oldest.set(age_s)

    def _accepted_ms(self, namespace: str, name: str) -> int:
        """When a job was accepted; 0 if that is not known."""
        job = self._state.jobs.get((namespace, name))
        return job.at_ms if job is not None else 0
