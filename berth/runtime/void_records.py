"""Void messages of the ledger, as every service that folds it counts and reports them."""

from berth.runtime.logs import Logger
from berth.runtime.metrics import MetricsRegistry
from berth.schemas.chain import UNSIGNED


class VoidRecords:
    """Counts messages that count for nothing, each once in a process.

    Args:
        registry: Registry on which the metric is created.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._counter = registry.counter(
            "void_records_total",
            "Messages on the ledger's subject that change nothing: of a dispatcher that leads no more, or published by"
            " something else. The log names the sequence and the reason of each once.",
        )
        self._unsigned = registry.counter(
            "unsigned_records_total",
            "Those of them that have no valid signature, while signatures are checked: somebody who must not writes there.",
        )
        self._last = 0

    def report(self, sequence: int, reason: str, log: Logger) -> None:
        """Count and report a void message, unless this process has read it before."""
        if sequence > self._last:
            self._last = sequence
            self._counter.inc()
            if reason == UNSIGNED:
                self._unsigned.inc()
            log.warning("void message in the ledger", sequence=sequence, reason=reason)
