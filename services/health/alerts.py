"""Alert rules about health."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert, missing

ALERTS: Final = (
    missing(
        "health",
        "berth_health_suspect_nodes",
        "warning",
        "new faults of chips and nodes are not seen",
        instead="berth_nodesim_nodes",
    ),
    Alert(
        name="BerthNodesUnhealthy",
        expr='sum by (namespace) (berth_health_nodes{level=~"no-new-work|evict"})'
        " / sum by (namespace) (berth_health_nodes) > 0.1",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="More than a tenth of the nodes accept no new work because of their health.",
        do="berth faults and berth nodes list them. If they share a source or a switch, look there first.",
    ),
    Alert(
        name="BerthReportsUnreadable",
        expr="max by (namespace) (berth_health_suspect_nodes) > 0",
        for_s=30 * MINUTE_S,
        severity="warning",
        means="The newest health reports of {{ $value | humanize }} nodes are refused; what they say of faults keeps new "
        "work away, beside the last valid ones.",
        do="berth nodes and the log of health name nodes and fields: a source may have changed its format.",
    ),
    Alert(
        name="BerthReportsStopped",
        expr="sum by (namespace) (increase(berth_health_reports_total[1h])) == 0"
        " and sum by (namespace) (berth_health_reports_total) > 0",
        for_s=15 * MINUTE_S,
        severity="warning",
        means="No health report has come for an hour, although there were some before.",
        do="See whether the device plug-ins and agents of the nodes run.",
    ),
)
