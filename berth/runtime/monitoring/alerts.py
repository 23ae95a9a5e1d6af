"""Alert rules for Prometheus, and those about every process.

The alerts of a service are a tuple ``ALERTS`` in its ``alerts.py``, beside its ``metrics.py``. Nothing reads them at
run time: ``python -m tests.contract.monitoring_files`` writes them to ``k8s/monitoring``.

An expression gives one series for each cell that has the problem, so it aggregates ``by (namespace)``; a Prometheus
that adds no such label watches one cell. It uses the functions that ``tests/support/promql.py`` evaluates, and no
others: each alert is tried there on the metrics of a service. Thresholds are meant to be quiet in a cell that works;
none of them is a measured limit.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "info"]
"""critical: jobs are not placed or not started. warning: they will not be, or something else needs a person. info: look
at it in working hours."""

MINUTE_S: Final = 60
HOUR_S: Final = 3_600


class Alert(NamedTuple):
    """An alert rule.

    Attributes:
        name: Name, ``Berth`` and what is wrong; the page for operators has a heading of this name.
        expr: Expression in PromQL; the alert is active while it gives a series.
        for_s: How long it must be active before the alert fires, in seconds.
        severity: How urgent it is.
        means: What it means, one sentence; the first line of a notification. May use templates of Prometheus.
        do: What to do first, one or two sentences.
    """

    name: str
    expr: str
    for_s: int
    severity: Severity
    means: str
    do: str


def missing(service: str, gauge: str, severity: Severity, effect: str, *, instead: str = "") -> Alert:
    """Alert that no process of a service is there, while others of the cell are.

    Args:
        service: Name of the service.
        gauge: A metric that each of its processes has.
        severity: How urgent it is.
        effect: What does not happen meanwhile.
        instead: A metric of a service that stands for it in a simulated cell; empty for none.
    """
    found = f"({gauge} or {instead})" if instead else gauge
    return Alert(
        name=f"Berth{service.capitalize()}Missing",
        expr=f"count by (namespace) (berth_process_ready) unless on (namespace) {found}",
        for_s=5 * MINUTE_S,
        severity=severity,
        means=f"No process of {service} can be read: {effect}.",
        do=f"Look at the pods of {service}: kubectl -n berth-system describe pods, and the last lines of their logs.",
    )


ALERTS: Final = (
    Alert(
        name="BerthNotScraped",
        expr="absent(berth_process_ready)",
        for_s=10 * MINUTE_S,
        severity="critical",
        means="Prometheus reads no process of Berth: the cell is down, or nobody watches it.",
        do="See whether pods run in berth-system, and whether Prometheus selects the PodMonitor.",
    ),
    Alert(
        name="BerthLedgerStopped",
        expr='sum by (namespace) (up{job=~"berth-(dispatcher|scorer|binder|api|summary)"}) == 0',
        for_s=5 * MINUTE_S,
        severity="critical",
        means="No process that reads the ledger answers: a message in the ledger may stop all of them.",
        do="Read the last lines of their logs. If one says `breaks the ledger`, run berth fsck and then berth repair.",
    ),
    Alert(
        name="BerthProcessDown",
        expr='up{job=~"berth-.+"} == 0',
        for_s=5 * MINUTE_S,
        severity="warning",
        means="{{ $labels.job }} on {{ $labels.instance }} does not answer: it has ended, hangs or starts again and again.",
        do="Read the last lines of its log; a process that ends names the reason, and berth repair or berth restore if"
        " one of them helps.",
    ),
    Alert(
        name="BerthProcessRestarts",
        expr="changes(process_start_time_seconds[30m]) > 2 and berth_process_ready",
        for_s=0,
        severity="warning",
        means="{{ $labels.job }} on {{ $labels.instance }} has started {{ $value | humanize }} times in 30 minutes.",
        do="Read the log of the container that ended (kubectl logs --previous): its last line has the reason.",
    ),
    Alert(
        name="BerthProcessNotReady",
        expr="berth_process_ready == 0 unless berth_process_connected == 0",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="{{ $labels.job }} on {{ $labels.instance }} is connected to NATS but not ready.",
        do="Ask its /readyz, which names what it waits for.",
    ),
    Alert(
        name="BerthNatsDisconnected",
        expr="berth_process_connected == 0",
        for_s=2 * MINUTE_S,
        severity="critical",
        means="{{ $labels.job }} on {{ $labels.instance }} is not connected to NATS.",
        do="See whether NATS runs (berth status), and whether a network policy or a certificate keeps this pod away.",
    ),
    Alert(
        name="BerthConsumerLags",
        expr="berth_process_waiting_messages > 10000",
        for_s=10 * MINUTE_S,
        severity="warning",
        means="{{ $labels.job }} on {{ $labels.instance }} has not applied {{ $value | humanize }} messages of {{ $labels.stream }}.",
        do="See whether it has too little cpu, or whether something writes very many messages to the stream.",
    ),
    Alert(
        name="BerthVoidRecords",
        expr="max by (namespace) (increase(berth_void_records_total[1h])) > 10",
        for_s=0,
        severity="warning",
        means="The ledger got {{ $value | humanize }} messages in an hour that change nothing: something else may publish there.",
        do="The logs name sequence and reason of each. See who has the right to publish to the subject of the ledger.",
    ),
    Alert(
        name="BerthForgedRecords",
        expr="max by (namespace) (increase(berth_unsigned_records_total[1h])) > 0",
        for_s=0,
        severity="critical",
        means="The ledger got {{ $value | humanize }} messages in an hour without a valid signature. They change nothing.",
        do="Find who can publish to the ledger: revoke its key (berth keys revoke). After a change of keys, see that each"
        " process has all of them in bus.signers_file.",
    ),
    Alert(
        name="BerthForeignMessages",
        expr="sum by (namespace, stream) (berth_process_foreign_messages) > 0",
        for_s=1 * MINUTE_S,
        severity="critical",
        means="Processes dropped {{ $value | humanize }} messages that something else sent to them as messages of {{ $labels.stream }}.",
        do="Find who can publish to the inboxes of services, and revoke its key (berth keys revoke).",
    ),
    Alert(
        name="BerthClusterSilent",
        expr="max by (namespace, job) (berth_watch_silence_seconds) > 300",
        for_s=5 * MINUTE_S,
        severity="critical",
        means="{{ $labels.job }} has heard nothing from the API server for {{ $value | humanizeDuration }}: what it knows is old.",
        do="See whether the API server answers, and whether the service account still has its rights (log of the pod).",
    ),
)
"""About every process."""
