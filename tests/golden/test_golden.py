"""The harness agrees with the vectors, and notices when it should not."""

import gzip
import json
from pathlib import Path

import pytest

from schemas.ledger import Settings
from tests.golden.__main__ import main
from tests.golden.families import FAMILIES
from tests.golden.folder import DATA, vectors_folder
from tests.golden.harness import (
    DEFAULTS,
    PARITY,
    RUNS,
    Answer,
    Line,
    Tally,
    family_of,
    read_lines,
    run_file,
    run_lines,
    vector_files,
)
from tests.golden.switches import event_differences


def built_files(folder: Path) -> list[Path]:
    return [path for path in vector_files(folder) if family_of(path) in FAMILIES] if folder.is_dir() else []


FILES = built_files(DATA) + built_files(vectors_folder())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize(("run", "settings"), RUNS, ids=[name for name, _ in RUNS])
def test_every_line_agrees(path: Path, run: str, settings: Settings) -> None:
    tally = run_file(path, FAMILIES[family_of(path)], run=run, settings=settings)
    assert not tally.failed, tally.text()
    assert tally.compared > 0


def test_small_files_cover_every_built_family() -> None:
    assert {family_of(path) for path in built_files(DATA)} == set(FAMILIES)


def altered(value: object) -> object:
    if isinstance(value, dict) and value:
        return {key: altered(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*value, 63]
    if isinstance(value, int) and not isinstance(value, bool):
        return value + 1
    return {True: False, False: True}.get(value, 1) if isinstance(value, bool) else "stranger"


def with_altered(line: Line, field: str) -> Line:
    outer, _, inner = field.partition(".")
    if inner:
        return line | {outer: line[outer] | {inner: altered(line[outer][inner])}}
    if field == "steps":
        return line | {"steps": [line["steps"][0] | {"node": "stranger"}, *line["steps"][1:]]}
    if field == "events":
        *before, last = (number for number, event in enumerate(line["events"]) if event["op"] == "arrive")
        assert before
        event = line["events"][last]
        wrong = event | {"result": event["result"] | {"ok": not event["result"]["ok"]}}
        return line | {"events": [*line["events"][:last], wrong, *line["events"][last + 1 :]]}
    return line | {field: altered(line[field])}


ALTERED = [
    ("multilevel", "result.ok"),
    ("multilevel", "canonical.level1_free_taken"),
    ("node_chip", "scores"),
    ("node_chip", "chosen_chips"),
    ("node_chip", "error"),
    ("node_chip_sequences", "steps"),
    ("node_chip_sequences", "release_last"),
    ("node_chip_available", "resulting_device_list"),
    ("node_chip_handler_select", "handled"),
    ("node_chip_handler_select", "max_per_node"),
    ("node_chip_handler_select", "forbidden_sizes"),
    ("node_chip_softshare", "scores"),
    ("node_chip_softshare", "chosen_card"),
    ("node_chip_softshare", "job_valid"),
    ("superpod", "result.ok"),
    ("superpod", "canonical.by_phys"),
    ("superpod", "canonical.by_vid"),
    ("superpod_rack", "result.ok"),
    ("superpod_rack", "canonical.by_rack"),
    ("superpod_infer", "result.ok"),
    ("superpod_infer", "canonical.by_phys"),
    ("superpod_infer", "canonical.by_vid"),
    ("superpod_resched", "result.ok"),
    ("superpod_resched", "canonical.by_phys"),
    ("superpod_resched", "canonical.by_vid"),
    ("superpod_validate", "result.pass"),
    ("superpod_validate", "result.reason"),
    ("switch", "result.ok"),
    ("switch", "result.error"),
    ("switch", "result.chosen_nodes"),
    ("switch", "result.pod_annotations"),
    ("switch", "result.switch_before"),
    ("switch", "result.switch_after"),
    ("switch_partial", "result.ok"),
    ("switch_partial", "result.error"),
    ("switch_partial", "result.rejected"),
    ("switch_partial", "result.chosen_nodes"),
    ("switch_trace", "events"),
]


@pytest.mark.parametrize(("family", "field"), ALTERED)
def test_an_altered_expectation_is_a_difference_in_both_runs(family: str, field: str) -> None:
    line = next(read_lines(DATA / f"{family}.jsonl"))
    wrong = with_altered(line, field)
    for run, settings in RUNS:
        tally = run_lines(iter([wrong]), FAMILIES[family], Tally(family, "altered", run), settings)
        assert tally.differing == 1
        assert tally.failed
        assert tally.shown


def test_a_decision_does_not_pardon_what_the_reference_run_gets_wrong_too() -> None:
    line = next(line for line in read_lines(DATA / "node_chip.jsonl") if line["id"] == "310p-health")
    wrong = line | {"scores": {"a": 1}}
    tally = run_lines(iter([wrong]), FAMILIES["node_chip"], Tally("node_chip", "altered", "default"), DEFAULTS)
    assert tally.differing == 1


def test_a_decision_on_one_event_of_a_trace_does_not_pardon_another() -> None:
    crossing = Answer(
        (("ok", "words"), ("pod_annotations", "words")), active=("annotations-in-1.0", "fill-crosses-leaf")
    )
    other = crossing._replace(active=("annotations-in-1.0",))
    assert [field for field, _ in event_differences(1, crossing)] == ["event ok", "event pod_annotations"]
    assert [field for field, _ in event_differences(2, other)] == ["other event ok", "event pod_annotations"]
    found = (*event_differences(1, crossing), *event_differences(2, other))

    def trace(_line: Line, settings: Settings) -> Answer:
        return Answer(() if settings.reference_parity else found, active=crossing.active)

    tally = run_lines(iter([{}]), trace, Tally("any", "any", "default"), DEFAULTS)
    assert tally.differing == 1


def test_a_name_that_nobody_allowed_fails() -> None:
    def stranger(_line: Line, _settings: Settings) -> Answer:
        return Answer(skipped=("because",))

    tally = run_lines(iter([{}]), stranger, Tally("x", "x", "parity"), PARITY)
    assert tally.failed
    assert "not allowed: because" in tally.text()


def test_command_line_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "holds no vectors" in capsys.readouterr().err
    (tmp_path / "later.jsonl").write_text("{}\n")
    assert main([str(tmp_path), "--family", "later"]) == 2
    assert "not built yet" in capsys.readouterr().err
    assert main([str(tmp_path), "--family", "stranger"]) == 2
    assert "unknown" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 0
    assert "not built yet" in capsys.readouterr().out


def test_command_line_fails_on_a_difference_and_reads_gz(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = next(read_lines(DATA / "node_chip_handler_select.jsonl"))
    with gzip.open(tmp_path / "node_chip_handler_select.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n" + json.dumps(line | {"handled": False}) + "\n")
    assert main([str(tmp_path), "--family", "node_chip_handler_select"]) == 1
    out = capsys.readouterr().out
    assert "differing    1" in out
    assert "line 2: handled: expected False, got True" in out
