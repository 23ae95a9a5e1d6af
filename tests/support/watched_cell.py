"""A cell as Prometheus sees it: the metrics of all its services, on registries of their own, without the services."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from prometheus_client import Gauge

from berth.core.requests.dead_reasons import CODES
from berth.runtime.metrics import MetricsRegistry
from berth.services.api.metrics import ApiMetrics
from berth.services.binder.metrics import BinderMetrics
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.health.metrics import HealthMetrics
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.scorer.metrics import ScorerMetrics
from berth.services.summary.metrics import SummaryMetrics
from tests.support.promql import Labels, Scrapes, Vector, evaluate

M_co = TypeVar("M_co", covariant=True)

STEP_S: Final = 120
NAMESPACE: Final = "berth-system"
_NATS: Final = "berth-nats"
_SERVER: Final = "http://nats-0.nats:8222"
_LIMIT_BYTES: Final = 18_000_000_000


class Process(Generic[M_co]):
    """Metrics of a process.

    Attributes:
        answers: Whether it answers Prometheus.
        is_there: Whether Prometheus knows it.
        started_s: Its start, in seconds.
    """

    def __init__(self, service: str, number: int, metrics: Callable[[MetricsRegistry], M_co]) -> None:
        self.registry = MetricsRegistry()
        self.metrics = metrics(self.registry)
        self.target = {
            "namespace": NAMESPACE,
            "job": f"berth-{service}",
            "pod": f"{service}-{number}",
            "container": service,
            "endpoint": "probes",
            "instance": f"{service}-{number}:8080",
        }
        self.answers = self.is_there = True
        self.started_s = 0.0
        self.registry.ready.set(1)
        self.registry.connected.set(1)


class WatchedCell:
    """A cell that works, until something of it is changed.

    Args:
        names: Samples that are kept.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.scrapes = Scrapes()
        self.now_s = 0
        self.dispatchers = [Process("dispatcher", number, DispatcherMetrics) for number in range(2)]
        self.scorers = [Process("scorer", number, ScorerMetrics) for number in range(2)]
        self.apis = [Process("api", number, ApiMetrics) for number in range(2)]
        self.binder_process = Process("binder", 0, BinderMetrics)
        self.inventory_process = Process("inventory", 0, InventoryMetrics)
        self.health_process = Process("health", 0, HealthMetrics)
        self.summary_process = Process("summary", 0, SummaryMetrics)
        self.gateway_process = Process("gateway", 0, GatewayMetrics)
        self.leader = self.dispatchers[0].metrics
        self.binder = self.binder_process.metrics
        self.inventory = self.inventory_process.metrics
        self.health = self.health_process.metrics
        self.summary = self.summary_process.metrics
        self.gateway = self.gateway_process.metrics
        self.idle: set[str] = set()
        """Parts that do nothing."""
        self.stored_bytes = 1_000_000
        self.slow_consumers = 0
        self.stream_leader = "nats-0"
        self._prepare()

    def _prepare(self) -> None:
        self.leader.leads.set(1)
        for dispatcher in self.dispatchers:
            dispatcher.metrics.epoch.set(7)
            dispatcher.metrics.shards.set(len(self.scorers))
            dispatcher.metrics.count_letters({})
            dispatcher.metrics.count_held([])
        for scorer in self.scorers:
            scorer.metrics.nodes.set(50)
        self.inventory.nodes.set(100)
        self.binder.pending.set(0)
        self.summary.jobs.set(3)
        self.silences_s = {"inventory": 20.0, "health": 20.0, "summary": 20.0}
        self.inventory.watches.measure(lambda: self.silences_s["inventory"])
        self.health.watches.measure(lambda: self.silences_s["health"])
        self.summary.watches.measure(lambda: self.silences_s["summary"])
        self.health.nodes.labels("ok").set(99)
        for level, nodes in (("sub-health", 0), ("no-new-work", 1), ("evict", 0)):
            self.health.nodes.labels(level).set(nodes)
        for api in self.apis:
            api.metrics.age.set(3)
            for state, chips in (("used", 700), ("free", 90), ("unhealthy", 10)):
                api.metrics.chips.labels("module910bx8", state).set(chips)
        for process in self.processes:
            process.registry.waiting.labels("FACTS").set(3)

    @property
    def processes(self) -> list[Process[object]]:
        """All processes."""
        return [
            *self.dispatchers,
            *self.scorers,
            *self.apis,
            self.binder_process,
            self.inventory_process,
            self.health_process,
            self.summary_process,
            self.gateway_process,
        ]

    def folded(self) -> list[Gauge]:
        """How far the services have folded the ledger that follow the dispatcher."""
        scorers = [process.metrics.ledger for process in self.scorers]
        return [*scorers, self.binder.ledger, *(process.metrics.ledger for process in self.apis)]

    def work(self) -> None:
        """Do what a cell does in one step: some jobs are placed, bound and end."""
        self.leader.rounds.inc(10)
        self.leader.judged.inc(10)
        for _ in range(10):
            self.leader.append.observe(0.004)
            self.leader.round_took.observe(0.02)
        self.leader.oldest.set(600)
        self.leader.ledger.inc(10)
        self.leader.facts.inc(50)
        if self.leader.ledger._value.get() % 1_000 == 0:
            self.leader.snapshot.set(self.leader.ledger._value.get())
            self.leader.snapshots.labels("written").inc()
        for scorer in self.scorers:
            scorer.metrics.requests.labels("yes").inc(10)
            scorer.metrics.ledger.inc(10)
        self.binder.ledger.inc(10)
        if "binder" not in self.idle:
            self.binder.outcomes.labels("bound").inc(10)
            self.binder.outcomes.labels("failed").inc(0.1)
        self.binder.pending.set(2)
        for api in self.apis:
            api.metrics.ledger.inc(10)
            api.metrics.requests.labels("status", "ok").inc(100)
            api.metrics.took.observe(0.003)
        if "device plug-ins" not in self.idle:
            self.health.taken.labels("device plug-in").inc(20)
        self.summary.writes.inc(5)
        self.gateway.requests.labels("/api/v1/jobs", "201").inc(100)
        self.gateway.took.observe(0.004)

    def step(self, change: Callable[["WatchedCell"], None] | None = None) -> None:
        """Let time pass, work, change something, and scrape."""
        self.now_s += STEP_S
        self.work()
        if change is not None:
            change(self)
        for process in self.processes:
            self._scrape(process)
        self.scrapes.put(
            self.now_s, {"namespace": NAMESPACE, "job": _NATS, "instance": "nats-exporter:7777"}, self._nats()
        )

    def _scrape(self, process: Process[object]) -> None:
        if not process.is_there:
            self.scrapes.drop(self.now_s, process.target)
            return
        known = process.registry if process.answers else None
        others = {"process_start_time_seconds": process.started_s} if process.answers else {}
        self.scrapes.read(self.now_s, process.target, known, names=self.names, others=others)

    def _nats(self) -> dict[tuple[str, Labels], float]:
        server = frozenset({("server_id", _SERVER)})
        stream = server | {
            ("stream_name", "demo-FACTS"),
            ("stream_leader", self.stream_leader),
            ("is_stream_leader", "true" if self.stream_leader == "nats-0" else "false"),
        }
        return {
            ("jetstream_server_total_message_bytes", server): self.stored_bytes,
            ("jetstream_server_max_storage", server): _LIMIT_BYTES,
            ("jetstream_stream_last_seq", stream): 100,
            ("gnatsd_varz_slow_consumers", server): self.slow_consumers,
            ("up", frozenset()): 1,
        }

    def letters(self, code: str, count: int) -> None:
        """Set the number of dead letters of a kind, as every dispatcher counts them."""
        assert code in CODES
        for process in self.dispatchers:
            process.metrics.count_letters({code: [60.0] * count})


class Watch:
    """An alert rule at work: which of its series are active, and since when."""

    def __init__(self, expr: str, for_s: int) -> None:
        self._expr = expr
        self._for_s = for_s
        self._since_s: dict[Labels, int] = {}
        self.values: Vector = {}

    def look(self, cell: WatchedCell) -> Mapping[Labels, float]:
        """Series for which the alert fires now."""
        self.values = evaluate(self._expr, cell.scrapes, cell.now_s)
        self._since_s = {labels: self._since_s.get(labels, cell.now_s) for labels in self.values}
        return {
            labels: value for labels, value in self.values.items() if cell.now_s - self._since_s[labels] >= self._for_s
        }
