"""Metrics of the dispatcher."""

from collections.abc import Iterable, Mapping, Sequence

from berth.core.requests.dead_reasons import CODES
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords
from berth.schemas.ledger import Verdict


class DispatcherMetrics:
    """What the dispatcher counts.

    Args:
        registry: Registry on which the metrics are created.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self.void = VoidRecords(registry)
        self.leads = registry.gauge("dispatcher_is_leader", "1 while this dispatcher decides, 0 while it stands by.")
        self.rounds = registry.counter("dispatcher_rounds_total", "Rounds that were appended to the ledger.")
        self.append = registry.seconds("dispatcher_append_seconds", "How long one append to the ledger took.")
        self.shards = registry.gauge(
            "dispatcher_shards", "Scorer shards that it asks; 0 if it scores in its own process."
        )
        self.waiting = registry.gauge("dispatcher_waiting_gangs", "Gangs that wait.")
        self.ledger = registry.gauge(
            "dispatcher_ledger_sequence", "Sequence of the last ledger record that was folded."
        )
        self.facts = registry.gauge("dispatcher_facts_sequence", "Sequence of the last fact that was applied.")
        self.judged = registry.counter("dispatcher_requests_total", "Requests of the intake that were validated.")
        self._placed = registry.counter("dispatcher_placed_gangs_total", "Gangs that were placed.")
        self._refused = registry.counter(
            "dispatcher_refused_gangs_total",
            "Verdicts of rounds that refuse a gang; a gang may get several while it waits.",
        )
        self.set_aside = registry.counter(
            "dispatcher_set_aside_total",
            "Decisions that ended with an error of Berth; the gang waits, the others go on.",
        )

        self.held = registry.gauge(
            "dispatcher_held_jobs",
            "Jobs that a fault does not restart yet: they wait for a second source or an approval, or for other jobs.",
            ["waits_for"],
        )

        self._letters = registry.gauge(
            "dispatcher_dead_letters",
            "Dead letters that are neither replayed nor purged, by the kind of their reason.",
            ["reason"],
        )
        self._letter_age = registry.gauge(
            "dispatcher_dead_letter_age_seconds", "Age of the oldest of them; 0 without one.", ["reason"]
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

    def count_round(self, verdicts: Iterable[Verdict]) -> None:
        """Count an appended round."""
        self.rounds.inc()
        for verdict in verdicts:
            (self._placed if verdict.placement is not None else self._refused).inc()
