"""Some seeds of the simulation, and what it says when something is wrong."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.__main__ import main, report, untouched
from tests.sim.batch import command, run_batch, shrunk
from tests.sim.observer import Observer
from tests.sim.run import Lived, live
from tests.sim.story import WEIGHTS, draw

SEEDS = 24
BATCH = 4


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
@pytest.mark.timeout(180)
def test_seeds_are_lived_through_and_nothing_is_wrong(first: int) -> None:
    result = run_batch(list(range(first, first + BATCH)))
    assert [(one.seed, one.kind, one.details, command(one)) for one in result.failed] == []
    assert result.count["kills"] > 0
    for check in ("records", "bindings", "chips of pods", "replay", "sleepers", "starts", "statuses"):
        assert result.count[f"check: {check}"], check


def test_the_same_seed_leaves_the_same_trace_in_any_process() -> None:
    code = "from tests.sim.run import live; one = live(9); print(one.trace, one.steps, one.kind)"
    said = {
        subprocess.run(  # noqa: S603  # our own code
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(said) == 1
    assert live(10).trace != live(9).trace


def test_every_kind_of_event_is_in_some_story() -> None:
    seen = Counter(event.verb for seed in range(900, 1200) for event in draw(seed).events)
    assert set(seen) == set(WEIGHTS)


def test_a_failing_seed_is_made_short_and_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(3).events
    culprit = next(number for number, event in enumerate(whole) if event.verb == "job")
    stored = Observer.stored

    def broken(self: Observer, name: str, message: object) -> None:
        if b"vcjob.j0" in getattr(message, "data", b""):
            self.fail("planted")
        stored(self, name, message)  # type: ignore[arg-type]  # whatever it is

    monkeypatch.setattr(Observer, "stored", broken)
    failing = live(3)
    assert failing.kind == "planted"
    short = shrunk(failing)
    assert short.kind == "planted"
    assert len(short.events) == 1
    assert whole[short.events[0]].verb == "job"
    assert short.events[0] >= culprit
    assert command(short) == f"python -m tests.sim --seed 3 --events {short.events[0]}"


def test_a_checker_that_checked_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_batch([4])
    assert report(result, 1.0) == 0
    result.count["check: bindings"] = 0
    assert report(result, 1.0) == 1
    assert "nothing was checked: bindings" in capsys.readouterr().out


def test_what_was_never_touched_is_named() -> None:
    assert "append.after" in untouched(Counter())["fault points"]
    assert "append.after" not in untouched(Counter({"point: append.after": 1}))["fault points"]
    assert set(untouched(Counter())["events"]) == set(WEIGHTS)


@pytest.mark.parametrize(
    "wrong", [["--seeds", "9-3"], ["--seeds", "x"], ["--seeds", "0"], [], ["--seeds", "3", "--seed", "1"]]
)
def test_seeds_that_cannot_be_meant_are_refused(wrong: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.sim", *wrong])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2


def test_a_seed_that_fails_has_a_short_command() -> None:
    assert command(Lived(7, [0, 1, 2], 3)) == "python -m tests.sim --seed 7"
    assert command(Lived(7, [], 3)) == "python -m tests.sim --seed 7 --events none"
