"""Alert rules about the binder."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert, missing

ALERTS: Final = (
    missing("binder", "berth_binder_pending_gangs", "critical", "placed jobs do not start"),
    Alert(
        name="BerthBinderLags",
        expr="max by (namespace) (berth_dispatcher_ledger_sequence)"
        " - min by (namespace) (berth_binder_ledger_sequence) > 1000",
        for_s=5 * MINUTE_S,
        severity="warning",
        means="The binder is {{ $value | humanize }} ledger records behind the dispatcher: jobs start late.",
        do="See whether it has too little cpu, and restart it if it hangs; it reads on where it was.",
    ),
    Alert(
        name="BerthBinderStuck",
        expr="max by (namespace) (berth_binder_pending_gangs) > 0"
        " unless on (namespace) sum by (namespace) (increase(berth_binder_gangs_total[15m])) > 0",
        for_s=15 * MINUTE_S,
        severity="critical",
        means="The binder has {{ $value | humanize }} jobs to bind or evict and has finished none for 15 minutes.",
        do="Its log has the errors of the API server. See whether its rights are complete, and whether a webhook or a"
        " PodDisruptionBudget refuses.",
    ),
    Alert(
        name="BerthBindFailures",
        expr='sum by (namespace) (rate(berth_binder_gangs_total{outcome="failed"}[30m]))'
        ' / sum by (namespace) (rate(berth_binder_gangs_total{outcome=~"bound|failed"}[30m])) > 0.2',
        for_s=15 * MINUTE_S,
        severity="warning",
        means="More than a fifth of the jobs that were placed could not be bound; they are placed again, a few times.",
        do="berth explain of such a job, and the Events of its pods, have the reason of the API server.",
    ),
    Alert(
        name="BerthBinderRetries",
        expr="sum by (namespace) (rate(berth_binder_retries_total[10m])) > 1",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="The binder repeats {{ $value | humanize }} failed attempts a second.",
        do="The API server is overloaded or refuses: the log of the binder has its answers.",
    ),
    Alert(
        name="BerthEvictionsHeld",
        expr="sum by (namespace) (increase(berth_binder_held_evictions_total[30m])) > 0",
        for_s=30 * MINUTE_S,
        severity="info",
        means="PodDisruptionBudgets hold back evictions for faults or a drain.",
        do="berth faults names the pods. Relax the budget, or delete the pods yourself.",
    ),
    Alert(
        name="BerthNoticesFail",
        expr='sum by (namespace) (increase(berth_binder_notices_total{result="failed"}[30m])) > 20',
        for_s=0,
        severity="info",
        means="Conditions and Events of pods could not be written: users do not see why their jobs wait.",
        do="See whether the binder may patch the status of Pods and create Events.",
    ),
)
