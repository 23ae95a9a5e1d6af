"""Metrics of the dispatcher."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from berth.core.requests.dead_reasons import CODES
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords
from berth.schemas.ledger import Round

_WAITS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
"""Bounds for what depends on the load of the cluster, in seconds."""


class DispatcherMetrics:
    """What the dispatcher counts.

    Args:
        registry: Registry on which the metrics are created.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.leads = registry.gauge(
            "dispatcher_is_leader",
            "1 while this dispatcher is the leader, 0 while it is standby. Exactly one of a cell should report 1.",
        )
        self.refuses = registry.gauge(
            "dispatcher_refuses_to_lead",
            "1 while this dispatcher must not lead, because ledger records were lost or a restore is not complete; the"
            " reason is in `/readyz` and in its log (`does not lead`).",
        )
        self.epoch = registry.gauge(
            "dispatcher_epoch", "Number of the epoch in the last ledger record that was folded; each leader begins one."
        )
        self.rounds = registry.counter("dispatcher_rounds_total", "Rounds that were appended to the ledger.")
        self.round_took = registry.seconds(
            "dispatcher_round_seconds",
            "Duration of one round: take jobs, ask for offers, choose, append. Rounds that appended nothing are left"
            " out.",
        )
        self.append = registry.seconds(
            "dispatcher_append_seconds", "How long one append to the ledger took; NATS and its disk."
        )
        self.shards = registry.gauge(
            "dispatcher_shards", "Shards that this dispatcher asks; 0 if it scores in its own process."
        )
        self._missing = registry.counter(
            "dispatcher_missing_offers_total", "Answers of shards that rounds did not get in time, or could not use."
        )
        self.waiting = registry.gauge("dispatcher_waiting_gangs", "Jobs that wait.")
        self.oldest = registry.gauge(
            "dispatcher_oldest_waiting_seconds",
            "Time since the oldest waiting job was accepted; 0 without one, and while this dispatcher does not lead.",
        )
        self.admission = registry.seconds(
            "dispatcher_admission_wait_time_seconds",
            "Time from the acceptance of a job until its first placement.",
            bounds=_WAITS,
        )
        self.ledger = registry.gauge("dispatcher_ledger_sequence", "The last ledger record that was folded.")
        self.facts = registry.gauge("dispatcher_facts_sequence", "The last fact that was applied.")
        self.snapshot = registry.gauge(
            "dispatcher_snapshot_sequence",
            "Ledger record up to which the newest snapshot reaches that this dispatcher wrote or loaded.",
        )
        self.snapshots = registry.counter(
            "dispatcher_snapshots_total", "Snapshots, by `result`: `written`, `failed`.", ["result"]
        )
        for result in ("written", "failed"):
            self.snapshots.labels(result)
        self.foreign_statuses = registry.counter(
            "dispatcher_foreign_statuses_total", "Statuses that no dispatcher wrote, and that were passed over."
        )
        self.judged = registry.counter("dispatcher_requests_total", "Requests that were validated.")
        self._placed = registry.counter("dispatcher_placed_gangs_total", "Jobs that were placed.")
        self._refused = registry.counter(
            "dispatcher_refused_gangs_total",
            "Verdicts without a placement; a job may get several while it waits.",
        )
        self.set_aside = registry.counter(
            "dispatcher_set_aside_total",
            "Decisions that ended with an error of Berth; the job waits with the reason `internal`, the others go on,"
            " and the log has the error.",
        )
        self.held = registry.gauge(
            "dispatcher_held_jobs",
            "Jobs that a fault does not restart yet, by what they wait for (`waits_for`): `approval` (a second source,"
            " or `berth faults approve`), `jobs` (others that restart).",
            ["waits_for"],
        )
        self._letters = registry.gauge(
            "dispatcher_dead_letters",
            "Dead letters that are neither replayed nor purged, by `reason`: `undecodable` (the bytes are no message of"
            " Berth, such as JSON), `unknown-kind` (of a newer release, or for something else), `invalid` (a wrong"
            " field), `wrong-subject`, `unstorable` (the verdict is too large), `internal-error`, `other`. Every"
            " dispatcher reports all of the cell; see `berth dead list`.",
            ["reason"],
        )
        self._letter_age = registry.gauge(
            "dispatcher_dead_letter_age_seconds", "Age of the oldest of them, by `reason`; 0 without one.", ["reason"]
        )

    def count_letters(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """Count dead letters.

        Args:
            ages_s: Their ages in seconds, by the kind of their reason.
        """
        for code in CODES:
            ages = ages_s.get(code, ())
            self._letters.labels(code).set(len(ages))
            self._letter_age.labels(code).set(max(ages, default=0))

    def count_held(self, approvable: Iterable[bool]) -> None:
        """Count jobs that do not restart yet, by whether a person may approve it."""
        found = list(approvable)
        self.held.labels("approval").set(sum(found))
        self.held.labels("jobs").set(len(found) - sum(found))

    def count_round(self, record: Round) -> None:
        """Count an appended round."""
        self.rounds.inc()
        self._missing.inc(len(record.missing))
        for verdict in record.verdicts:
            (self._placed if verdict.placement is not None else self._refused).inc()
