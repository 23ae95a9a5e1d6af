"""Alert rules about NATS, from the metrics of prometheus-nats-exporter, where one runs."""

from typing import Final

from berth.runtime.monitoring.alerts import MINUTE_S, Alert

ALERTS: Final = (
    Alert(
        name="BerthNatsStorageFull",
        expr="max by (namespace, server_id) (jetstream_server_total_message_bytes / jetstream_server_max_storage) > 0.8",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="NATS server {{ $labels.server_id }} uses more than 80 % of the storage that its streams may have.",
        do="See which stream grows (berth status); give the servers larger volumes and raise max_file_store.",
    ),
    Alert(
        name="BerthNatsSlowConsumers",
        expr="sum by (namespace, server_id) (increase(gnatsd_varz_slow_consumers[15m])) > 0",
        for_s=0,
        severity="warning",
        means="NATS server {{ $labels.server_id }} has closed connections that did not read fast enough.",
        do="A process hangs or has too little cpu: look for BerthProcessDown and BerthProcessRestarts.",
    ),
    Alert(
        name="BerthNatsStreamWithoutLeader",
        expr='count by (namespace, stream_name) (jetstream_stream_last_seq{stream_leader=""} unless'
        ' jetstream_stream_last_seq{is_stream_leader="true"}) > 0',
        for_s=2 * MINUTE_S,
        severity="critical",
        means="Stream {{ $labels.stream_name }} has no leader: nothing can be stored in it.",
        do="See which NATS servers are down: two of three have to run and reach each other.",
    ),
)
"""About NATS."""
