"""Void messages of the ledger: what counts, and how often."""

from structlog.testing import capture_logs

from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.void_records import VoidRecords
from berth.schemas.chain import UNSIGNED


def test_a_void_message_counts_once_and_those_without_a_signature_count_apart() -> None:
    registry = MetricsRegistry()
    records = VoidRecords(registry)
    with capture_logs() as lines:
        for sequence, reason in (
            (3, "another leader"),
            (5, UNSIGNED),
            (5, UNSIGNED),
            (3, "another leader"),
            (6, UNSIGNED),
        ):
            records.report(sequence, reason, DEFAULT_LOG)
    assert [(line["sequence"], line["reason"]) for line in lines] == [
        (3, "another leader"),
        (5, UNSIGNED),
        (6, UNSIGNED),
    ]
    shown = registry.exposition().decode().splitlines()
    assert "berth_void_records_total 3.0" in shown
    assert "berth_unsigned_records_total 2.0" in shown
