"""Alert rules about the summary writer."""

from typing import Final

from berth.runtime.monitoring.alerts import Alert, missing

ALERTS: Final = (
    missing(
        "summary",
        "berth_summary_jobs",
        "warning",
        "ConfigMaps about jobs and faults are not written",
        instead="berth_nodesim_nodes",
    ),
    Alert(
        name="BerthSummariesFail",
        expr="sum by (namespace) (increase(berth_summary_failures_total[30m]))"
        " + sum by (namespace) (increase(berth_summary_fault_failures_total[30m])) > 20",
        for_s=0,
        severity="warning",
        means="ConfigMaps about jobs or faults could not be written {{ $value | humanize }} times in 30 minutes.",
        do="See whether summary may write ConfigMaps in the namespaces of the jobs (its log names them).",
    ),
)
