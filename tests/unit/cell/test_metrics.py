"""Metrics of several services in one answer: which of them say of which service they are."""

from prometheus_client.parser import text_string_to_metric_families

from berth.cell.metrics import merged_exposition
from berth.runtime.metrics import MetricsRegistry


def test_metrics_of_several_services_name_theirs_and_those_of_the_cell_none() -> None:
    api, binder = MetricsRegistry(), MetricsRegistry()
    api.gauge("api_height_sequence", "Its own.").set(1)
    api.cell_gauge("chips", "Of the cell.", ["state"]).labels("free").set(8)
    binder.ready.set(1)
    text = merged_exposition({"api": api, "binder": binder}).decode()
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in {"berth_api_height_sequence", "berth_chips", "berth_process_ready"}
    }
    assert found == {
        ("berth_api_height_sequence",): 1,
        ("berth_chips", ("state", "free")): 8,
        ("berth_process_ready", ("service", "api")): 0,
        ("berth_process_ready", ("service", "binder")): 1,
    }
