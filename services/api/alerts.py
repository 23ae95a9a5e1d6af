"""Alert rules about the service for programs."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert, missing

ALERTS: Final = (
    missing("api", "berth_api_ledger_sequence", "warning", "programs get no answers and no events"),
    Alert(
        name="BerthApiErrors",
        expr='sum by (namespace) (rate(berth_api_requests_total{result=~"internal|unavailable"}[10m]))'
        " / sum by (namespace) (rate(berth_api_requests_total[10m])) > 0.05",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="More than one of 20 requests of programs ends with an error that is not theirs.",
        do="See whether NATS is reached (BerthNatsDisconnected); the log of api has errors of Berth.",
    ),
    Alert(
        name="BerthApiSlow",
        expr="histogram_quantile(0.99, sum by (namespace, le) (rate(berth_api_request_seconds_bucket[10m]))) > 1",
        for_s=10 * MINUTE_S,
        severity="info",
        means="One of 100 requests of programs takes longer than {{ $value | humanizeDuration }}.",
        do="Add an instance of api, or find the program that asks too much (berth_api_requests_total by operation).",
    ),
    Alert(
        name="BerthEventsLate",
        expr="max by (namespace) (berth_dispatcher_ledger_sequence)"
        " - max by (namespace) (berth_api_ledger_sequence) > 1000",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="Events of jobs are {{ $value | humanize }} ledger records behind: programs learn of changes late.",
        do="See whether api has too little cpu, and whether its log says that events cannot be stored.",
    ),
    Alert(
        name="BerthEventsFail",
        expr="sum by (namespace) (increase(berth_api_event_failures_total[30m])) > 20",
        for_s=0,
        severity="warning",
        means="Events could not be stored {{ $value | humanize }} times in 30 minutes; they are tried again.",
        do="The log of api has the reason: NATS has no room, or the user of api lacks a right.",
    ),
    Alert(
        name="BerthChipsUnhealthy",
        expr='max by (namespace, product) (berth_chips{state="unhealthy"})'
        " / sum by (namespace, product) (max by (namespace, product, state) (berth_chips)) > 0.1",
        for_s=30 * MINUTE_S,
        severity="warning",
        means="More than a tenth of the chips of {{ $labels.product }} are unhealthy, and no pod has them.",
        do="berth faults lists what is broken, in groups; berth_leaf_chips and berth_superpod_chips show where it is.",
    ),
    Alert(
        name="BerthCountsOld",
        expr="min by (namespace) (berth_counts_age_seconds) > 120",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="No instance of api has counted for {{ $value | humanizeDuration }} how full the cluster is.",
        do="See whether api reaches NATS and has enough cpu; its log says why it does not go on.",
    ),
)
