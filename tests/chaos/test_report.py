"""A run that tried nothing fails, and the figures of others are told as they are."""

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.__main__ import options_of, run_cells
from tests.chaos.checker import Verdict, Violation
from tests.chaos.fault import Setup
from tests.chaos.report import command, page, summary
from tests.chaos.run import ChaosError, Figures, Options, Recovery, see_it_tried
from tests.chaos.schedule import SHORT, Plan

FIGURES: Final = Figures(
    Options(Setup("kube", 3), seed=5, seconds=60),
    injected=Counter({"kill": 3, "delay": 1}),
    overlaps=2,
    rounds=2,
    recoveries=[Recovery(("kill",), 0.5, 1.5), Recovery(("delay", "kill"), 2.5, 3.5)],
    operations=Counter({("submit", "ok"): 40, ("submit", "unknown"): 2, ("cancel", "ok"): 4}),
    verdict=Verdict(
        acknowledged=40, unknown=2, fates=Counter({"finished": 36, "cancelled": 4}), placings=41, pods=50, events=120
    ),
    records=90,
    looks=30,
    took_s=90.0,
)

BUS: Final = replace(FIGURES, options=Options(Setup("bus", 1), seed=6, seconds=60))
NOTHING: Final[list[tuple[Figures, str]]] = [
    (BUS, "no sequence of a request was told"),
    (replace(FIGURES, injected=Counter()), "no fault was injected"),
    (replace(FIGURES, verdict=replace(FIGURES.verdict, acknowledged=0)), "no submit was acknowledged"),
    (replace(FIGURES, verdict=replace(FIGURES.verdict, placings=0)), "nothing was placed"),
    (replace(FIGURES, looks=0), "nobody looked"),
    (replace(FIGURES, verdict=replace(FIGURES.verdict, events=0)), "no event was stored"),
    (replace(FIGURES, verdict=replace(FIGURES.verdict, pods=0)), "no live pod was seen"),
]


def test_a_run_that_tried_all_is_one() -> None:
    see_it_tried(FIGURES)
    see_it_tried(replace(BUS, verdict=replace(FIGURES.verdict, sequences=40, pods=0)))


@pytest.mark.parametrize(("figures", "words"), NOTHING, ids=[words for _, words in NOTHING])
def test_a_run_that_tried_nothing_fails(figures: Figures, words: str) -> None:
    with pytest.raises(ChaosError, match=words):
        see_it_tried(figures)


def test_the_summary_has_the_figures_and_the_violations() -> None:
    text = summary(FIGURES)
    assert "4 faults in 2 rounds, 2 pairs at the same time: delay 1, kill 3" in text
    assert "next placement 1.50 s, 2.50 s, of a new job 2.50 s, 3.50 s" in text
    assert "submits: 40 acknowledged, 2 without answer, 0 refused" in text
    assert text.endswith("lost 0, doubled 0, other violations 0")
    found = [Violation("lost", "a"), Violation("doubled", "b"), Violation("chip twice", "c"), Violation("ghost", "d")]
    text = summary(replace(FIGURES, verdict=replace(FIGURES.verdict, violations=found)))
    assert "lost 1, doubled 2, other violations 1" in text
    assert "VIOLATION chip twice: c" in text


def test_the_page_has_a_column_for_each_run_and_a_row_for_each_kind() -> None:
    other = replace(FIGURES, options=Options(Setup("bus", 1), seed=6, seconds=60), injected=Counter({"cut": 1}))
    text = page([FIGURES, other])
    assert "| | kube-3 | bus-1 |" in text
    assert "| seed | 5 | 6 |" in text
    assert "| **lost** | 0 | 0 |" in text
    assert "| delay | 1 | 2.50 s, 2.50 s | 3.50 s, 3.50 s |" in text
    assert "| cut | 1 | none | none |" in text
    assert "- `kube-3`: cancelled 4, finished 36" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "- "))) <= 120


LOST: Final = Verdict(acknowledged=1, violations=[Violation("lost", "a"), Violation("doubled", "b")])


@pytest.mark.parametrize("has_violations", [True, False], ids=["violations", "an error"])
def test_a_run_that_failed_prints_the_command_that_draws_the_same_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, *, has_violations: bool
) -> None:
    ran: list[Options] = []

    async def fails(options: Options, _: Path, __: Callable[[str], None]) -> Figures:
        ran.append(options)
        if not has_violations:
            raise ChaosError("it does not recover")
        return replace(FIGURES, options=options, verdict=LOST)

    monkeypatch.setattr("tests.chaos.run.run", fails)
    words = ["--folder", str(tmp_path), "--seed", "7", "--seconds", "30", "--rounds", "4", "--short"]
    cells = ["--cells", "bus-3,kube-3", "--faults", "split servers, kill"]
    assert asyncio.run(run_cells(options_of([*words, *cells]))) == 1
    said = capsys.readouterr().out
    again = [line.removeprefix("again: ") for line in said.splitlines() if line.startswith("again: ")]
    assert said.count("logs are in") == len(again) == len(ran) == 2
    for line, before in zip(again, list(ran), strict=True):
        head, *rest = shlex.split(line)[2:]
        assert head == "tests.chaos"
        asyncio.run(run_cells(options_of([*rest, "--folder", str(tmp_path)])))
        assert ran[-1] == before
        assert ran[-1] is not before
        plans = [Plan(one.seed, one.setup, one.faults, one.length) for one in (ran[-1], before)]
        assert plans[0].next_round() == plans[1].next_round()


def test_a_run_without_violations_leaves_no_folder_and_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def goes_well(options: Options, _: Path, __: Callable[[str], None]) -> Figures:
        return replace(FIGURES, options=options)

    monkeypatch.setattr("tests.chaos.run.run", goes_well)
    assert asyncio.run(run_cells(options_of(["--folder", str(tmp_path), "--cells", "kube-3"]))) == 0
    assert "again:" not in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_command_has_every_option_that_changes_the_plan() -> None:
    options = Options(Setup("bus", 3), 7, 12.5, rounds_min=4, faults=("split servers", "kill"), length=SHORT)
    assert command(options) == (
        "python -m tests.chaos --cells bus-3 --seed 7 --seconds 12.5 --rounds 4 --faults 'split servers,kill' --short"
    )
    assert command(replace(options, faults=(), length=FIGURES.options.length)) == (
        "python -m tests.chaos --cells bus-3 --seed 7 --seconds 12.5 --rounds 4"
    )
