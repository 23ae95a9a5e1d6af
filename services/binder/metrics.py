"""What the binder counts."""

from typing import Final

from berth.runtime.metrics import counter, gauge, seconds

OUTCOMES: Final = counter(
    "binder_gangs_total", "Gangs that were handled, by outcome: bound, failed or evicted.", ["outcome"]
)
TOOK: Final = seconds("binder_gang_seconds", "How long it took to bind or evict one gang, its outcome included.")
RETRIES: Final = counter("binder_retries_total", "Tries that failed and are made again.")
PENDING: Final = gauge("binder_pending_gangs", "Gangs that are to be bound or evicted, those under way included.")
LEDGER: Final = gauge("binder_ledger_sequence", "Sequence of the last ledger record that was folded.")
PODS: Final = counter("binder_pods_total", "Pods that were to be bound, by result: bound or failed.", ["result"])
NOTICES: Final = counter(
    "binder_notices_total", "Pod conditions and Events, by result: written, failed or dropped.", ["result"]
)
