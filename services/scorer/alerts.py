"""Alert rules about scorers."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert

ALERTS: Final = (
    Alert(
        name="BerthScorerLate",
        expr='sum by (namespace) (rate(berth_scorer_requests_total{ready="no"}[10m]))'
        " / sum by (namespace) (rate(berth_scorer_requests_total[10m])) > 0.1",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="Scorers cannot answer more than a tenth of the requests in time: their nodes are left out of rounds.",
        do="Give the scorers more cpu; see whether NATS delivers to them slowly (BerthConsumerLags).",
    ),
    Alert(
        name="BerthScorerLags",
        expr="max by (namespace) (berth_dispatcher_ledger_sequence)"
        " - min by (namespace) (berth_scorer_ledger_sequence) > 1000",
        for_s=5 * MINUTE_S,
        severity="warning",
        means="A scorer is {{ $value | humanize }} ledger records behind the dispatcher: it hangs, and its nodes get no new work.",
        do="Find it with berth status and restart it; it needs no state of its own.",
    ),
)
