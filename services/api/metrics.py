"""What the service for programs counts: its work, and what the cell has.

Every instance counts the whole cell, so queries take the greatest of their values.
"""

import math

from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords


class ApiMetrics:
    """What the service for programs counts.

    Args:
        registry: Where the metrics are made.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.requests = registry.counter(
            "api_requests_total",
            "Requests of programs, by `operation` and `result`: `ok`, or the code of the error.",
            ["operation", "result"],
        )
        self.took = registry.seconds(
            "api_request_seconds", "Duration of one request, but for `events`, which may wait."
        )
        self.events = registry.counter("api_events_total", "Events of jobs that were stored.")
        self.repeated = registry.counter(
            "api_events_repeated_total",
            "Events that were stored already: by another instance, or before a restart.",
        )
        self.failures = registry.counter(
            "api_event_failures_total", "Failed attempts to store events, which are retried."
        )
        self.untraced = registry.counter(
            "api_untraced_jobs_total",
            "Jobs without a trace, because more than `tracing.jobs_per_s` were accepted or rejected in their second.",
        )
        self.facts = registry.gauge("api_facts_sequence", "The last fact whose events are stored.")
        self.ledger = registry.gauge(
            "api_ledger_sequence",
            "The last ledger record whose events are stored; if it stays behind that of the dispatcher, events are late.",
        )
        self.chips = registry.cell_gauge(
            "chips",
            "Chips, by `product` and `state`, each in one: `used` (pods have them), `reserved` (for a job that starts anew"
            " or recovers, and no pod has them yet), `free` (new work can get them), `unhealthy` (they or their node),"
            " `drained` (their node is drained or cordoned), `withheld` (their node does not offer them). The product"
            " `unknown` stands for nodes of none that Berth knows.",
            ["product", "state"],
        )
        self.leaf_chips = registry.cell_gauge(
            "leaf_chips",
            "As `berth_chips`, by `leaf`: chips below each leaf switch, unless there are more than"
            " `place_series_max` of them.",
            ["leaf", "state"],
        )
        self.superpod_chips = registry.cell_gauge(
            "superpod_chips",
            "As `berth_chips`, by `superpod`, unless there are more than `place_series_max` of them.",
            ["superpod", "state"],
        )
        self.nodes = registry.cell_gauge(
            "nodes",
            "Nodes, by `product` and `state`: `free` (takes new work, and all its chips are free), `used` (takes new work"
            " on what is left), `closed` (takes none: not ready, unhealthy, drained or cordoned).",
            ["product", "state"],
        )
        self.places = registry.cell_gauge(
            "places",
            "Leaf switches and SuperPoDs (`level`), by `state`: `free` (all its nodes are), `partly-free` (some of them),"
            " `full` (none).",
            ["level", "state"],
        )
        self.unlisted = registry.cell_gauge(
            "places_without_series",
            "Leaf switches and SuperPoDs (`level`) that have no series of their own, because there are more than"
            " `place_series_max`; 0 if each has its own.",
            ["level"],
        )
        self.waiting_chips = registry.cell_gauge(
            "waiting_chips",
            "Chips that jobs wait for, by the `product` that they ask for; `unknown` if none fits.",
            ["product"],
        )
        self.jobs = registry.cell_gauge("jobs", "Jobs that are not over, by `phase`.", ["phase"])
        self.waiting_jobs = registry.cell_gauge(
            "waiting_jobs",
            "Jobs that wait, by `reason`: the code of their refusal, or `none` before the first one. Reasons of no job"
            " are left out.",
            ["reason"],
        )
        self.queue_chips = registry.cell_gauge(
            "queue_chips",
            "Chips of each queue with those below it, by `resource` and `state`: `held` (its jobs have them), `entitled`"
            " (it may get so many back), `limit` (it may hold so many; left out without a limit). There are none where"
            " queues do nothing, or with more than `place_series_max` queues.",
            ["queue", "resource", "state"],
        )
        self.queue_waiting_jobs = registry.cell_gauge(
            "queue_waiting_jobs",
            "Jobs that wait, by the queue that they name, as far as `berth_queue_chips` has it.",
            ["queue"],
        )
        self.age = registry.cell_gauge(
            "counts_age_seconds",
            "How old the numbers of chips, nodes, places and jobs are. They are left out while this instance is behind by"
            " more than a minute; +Inf before it has counted.",
        )
        self.age.set(math.inf)
