"""Alert rules about the gateway. A cell may have none, so none of them fires because there is none."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert

ALERTS: Final = (
    Alert(
        name="BerthGatewayErrors",
        expr='sum by (namespace) (rate(berth_gateway_requests_total{status=~"5.."}[10m]))'
        " / sum by (namespace) (rate(berth_gateway_requests_total[10m])) > 0.05",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="More than one of 20 HTTP requests ends with a status of 500 or above.",
        do="503 means that api does not answer (BerthApiMissing) or that a limit is reached; the log of gateway has others.",
    ),
    Alert(
        name="BerthGatewaySlow",
        expr="histogram_quantile(0.99, sum by (namespace, le) (rate(berth_gateway_request_seconds_bucket[10m]))) > 1",
        for_s=10 * MINUTE_S,
        severity="info",
        means="One of 100 HTTP requests waits longer than {{ $value | humanizeDuration }} for its answer.",
        do="See BerthApiSlow; if api is fast, add an instance of gateway.",
    ),
    Alert(
        name="BerthGatewayStreamsFull",
        expr="sum by (namespace) (increase(berth_gateway_refused_streams_total[15m])) > 10",
        for_s=0,
        severity="warning",
        means="The gateway refused {{ $value | humanize }} streams of events in 15 minutes: too many are open.",
        do="Look for a client that opens streams and does not close them; otherwise add an instance or raise streams_max or streams_per_identity.",
    ),
)
