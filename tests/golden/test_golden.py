"""The harness agrees with the vectors, and notices when it should not."""

import functools
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from berth.schemas.ledger import Settings
from tests.golden.__main__ import main
from tests.golden.alterations import Alter, added, altered, bared, less, more, swapped, turned
from tests.golden.families import COMPARED, FAMILIES
from tests.golden.folder import DATA, vectors_folder
from tests.golden.harness import (
    DEFAULTS,
    PARITY,
    RUNS,
    Answer,
    Line,
    Tally,
    family_of,
    judge,
    read_lines,
    run_file,
    run_lines,
    vector_files,
)


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


ALTERED: Final[Mapping[str, Mapping[str, tuple[Alter, ...]]]] = {
    "multilevel": {"result.ok": (more,), "canonical.level1_free_taken": (more, less)},
    "node_chip": {
        "error": (more,),
        "scores": (more, less, added, swapped),
        "chosen_chips": (more, less, added, swapped),
    },
    "node_chip_available": {"resulting_device_list": (more, swapped)},
    "node_chip_handler_select": {
        "handled": (more,),
        "max_per_node": (more,),
        "drops_net_unhealthy_when_distributed": (more,),
        "forbidden_sizes": (more, less),
    },
    "node_chip_sequences": {
        "steps[].final_scores": (more, less, added, swapped),
        "steps[].node": (more,),
        "steps[].error": (more,),
        "steps[].chips": (more, less, turned),
        "steps[].node_free_after": (more, less),
        "release_last.node": (more,),
        "release_last.node_free_after": (more, less),
    },
    "node_chip_softshare": {
        "job_valid": (more,),
        "scores": (more, less, added, swapped),
        "chosen_card": (more, swapped),
    },
    "queues": {
        "result.ready": (more,),
        "result.attrs": (more, less, added),
        "result.order": (more, less, turned),
        "result.enqueueable": (more, less, added, swapped),
        "result.lacking": (more, less, added),
        "result.allocatable": (more, less, added, swapped),
        "result.gangs[].bundles": (more, less),
    },
    "queues_ours": {
        "result.broken": (less, added),
        "result.state": (more, less, added, swapped),
        "result.limits": (more, less, added, swapped),
        "result.entitlements": (more, less, added, swapped),
        "result.share": (more, less, swapped),
        "result.borrowed": (more, less, swapped),
        "result.order": (more, less, turned),
        "result.within": (more, less),
        "result.admission": (more, less),
        "result.placement": (more, less),
        "result.candidates": (more, less),
        "result.allowed": (more,),
        "result.fits_alone": (more, less),
        "result.best": (more, less),
    },
    "superpod": {
        "result.ok": (more,),
        "result.reason": (more,),
        "canonical.by_phys": (more, less),
        "canonical.by_vid": (more, less),
    },
    "superpod_infer": {
        "result.ok": (more,),
        "canonical.by_phys": (more, less),
        "canonical.by_vid": (more, less),
    },
    "superpod_rack": {
        "result.ok": (more,),
        "canonical.by_phys": (more, less),
        "canonical.by_vid": (more, less),
        "canonical.by_rack": (more, less),
    },
    "superpod_resched": {
        "result.ok": (more,),
        "canonical.by_phys": (more, less),
        "canonical.by_vid": (more, less),
    },
    "superpod_validate": {"result.pass": (more,), "result.reason": (more,)},
    "switch": {
        "result.ok": (more,),
        "result.error": (more,),
        "result.chosen_nodes": (more, less, turned),
        "result.pod_annotations": (more, less, added, swapped),
        "result.switch_before": (more, less, added),
        "result.switch_after": (more, less, added),
    },
    "switch_partial": {
        "result.ok": (more,),
        "result.error": (more,),
        "result.rejected": (more, less, added),
        "result.chosen_nodes": (more, less, turned),
        "result.pod_annotations": (more, less, added, swapped),
        "result.switch_before": (more, less, added),
        "result.switch_after": (more, less, added),
    },
    "switch_trace": {
        "events[].result.ok": (more,),
        "events[].result.error": (more,),
        "events[].result.chosen_nodes": (more, less, turned),
        "events[].result.pod_annotations": (more, less, added, swapped),
        "events[].result.switch_before": (more, less, added),
        "events[].result.switch_after": (more, less, added),
    },
}
"""Alterations of every compared field that have to be noticed."""


def test_every_compared_field_is_altered() -> None:
    assert set(COMPARED) == set(FAMILIES)
    assert {family: set(fields) for family, fields in ALTERED.items()} == {
        family: set(fields) for family, fields in COMPARED.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("run", "settings"), RUNS, ids=[name for name, _ in RUNS])
def test_nothing_is_compared_that_is_not_declared(family: str, run: str, settings: Settings) -> None:
    for line in read_lines(DATA / f"{family}.jsonl"):
        bare = bared(line, COMPARED[family])
        assert judge(FAMILIES[family], bare, settings) == judge(FAMILIES[family], line, settings), (run, line.get("id"))


@functools.cache
def wholly_compared(family: str, run: str) -> list[Line]:
    """Lines of which nothing is left out, and where the reference's answer is the expected one."""
    lines = [*read_lines(DATA / f"{family}.jsonl")]
    judged = [judge(FAMILIES[family], line, dict(RUNS)[run]) for line in lines]
    return [line for line, answer in zip(lines, judged, strict=True) if not answer.skipped and not answer.decided]


@pytest.mark.parametrize(
    ("family", "field", "alter"),
    [(family, field, alter) for family, fields in ALTERED.items() for field in fields for alter in fields[field]],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@pytest.mark.parametrize(("run", "settings"), RUNS, ids=[name for name, _ in RUNS])
def test_an_altered_expectation_is_a_difference(
    family: str, field: str, alter: Alter, run: str, settings: Settings
) -> None:
    wrong = (other for line in wholly_compared(family, run) for other in altered(line, field, alter))
    tallies = (run_lines(iter([line]), FAMILIES[family], Tally(family, "altered", run), settings) for line in wrong)
    noticed = next((tally for tally in tallies if tally.differing), None)
    assert noticed is not None
    assert noticed.failed
    assert noticed.shown


def test_a_decision_does_not_pardon_what_the_reference_run_gets_wrong_too() -> None:
    line = next(line for line in read_lines(DATA / "node_chip.jsonl") if line["id"] == "310p-health")
    wrong = line | {"scores": {"a": 1}}
    tally = run_lines(iter([wrong]), FAMILIES["node_chip"], Tally("node_chip", "altered", "default"), DEFAULTS)
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
