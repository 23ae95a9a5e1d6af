"""Some seeds of the simulation, and what it says when something is wrong."""

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from tests.sim.__main__ import again, main, report, run_all
from tests.sim.batch import Result, command, run_batch, shrunk
from tests.sim.cell import CellSettings
from tests.sim.figures import ALL, AT_REST, MANY, page, untouched, wrongs
from tests.sim.observer import CHECKS, Observer
from tests.sim.run import STEPS_MIN, Lived, live
from tests.sim.story import CONTESTED_FROM, OWNERS_FROM, QUEUES, WEIGHTS, Event, Story, draw
from tests.sim.world import World
from tests.support.compiled_files import COMPILED_FILES

SEEDS = 32


@pytest.fixture(scope="module")
def lived() -> Result:
    """Many seeds, on all cores."""
    return run_all(0, SEEDS - 1, os.cpu_count() or 1)


@pytest.mark.timeout(900)
def test_seeds_are_lived_through_and_nothing_is_wrong(lived: Result) -> None:
    assert [(one.seed, one.kind, one.details, command(one)) for one in lived.failed] == []
    assert (lived.seeds, len(lived.steps)) == (SEEDS, SEEDS)
    assert min(lived.steps) >= STEPS_MIN


@pytest.mark.timeout(900)
def test_every_check_had_something_to_check(lived: Result) -> None:
    names = (*CHECKS, *AT_REST, *MANY, "restores", "backups", "messages lost with the power")
    assert [name for name in names if not lived.count[f"check: {name}"]] == []
    assert lived.count["kills"] > SEEDS


def test_the_same_seed_leaves_the_same_trace_in_any_process() -> None:
    code = "from tests.sim.run import live; one = live(9); print(one.trace, one.steps, one.kind)"
    said = {
        subprocess.run(  # noqa: S603  # our own code
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**COMPILED_FILES, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(said) == 1
    assert live(10).trace != live(9).trace


def test_every_kind_of_event_is_in_some_story() -> None:
    seen = Counter(event.verb for seed in range(300) for event in draw(seed).events)
    assert set(seen) == {*WEIGHTS, *QUEUES}


def test_a_failing_seed_is_made_short_and_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(3).events
    made_by = {"job", "heavy"}
    culprit = next(number for number, event in enumerate(whole) if event.verb in made_by)
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
    assert whole[short.events[0]].verb in made_by
    assert short.events[0] >= culprit
    assert command(short) == f"python -m tests.sim --seed 3 --events {short.events[0]}"


def test_an_error_that_no_checker_foresees_is_a_failing_seed_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(world: World) -> None:
        if any(event.verb == "job" for event in world.story.events):
            raise KeyError("planted")

    monkeypatch.setattr("tests.sim.run.see_rest", broken)
    result = run_batch([3])
    (short,) = result.failed
    assert (result.seeds, short.kind) == (1, "the simulation raises KeyError: 'planted'")
    assert "in broken\n" in short.details
    assert [draw(3).events[number].verb for number in short.events] == ["job"]
    assert command(short) == f"python -m tests.sim --seed 3 --events {short.events[0]}"


def test_a_story_that_cannot_be_drawn_is_a_failing_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seed: int) -> Story:
        raise KeyError(f"planted in {seed}")

    monkeypatch.setattr("tests.sim.run.draw", broken)
    (lived,) = run_batch([3]).failed
    assert lived.kind == "the simulation raises KeyError: 'planted in N'"
    assert command(lived) == "python -m tests.sim --seed 3"
    assert again(3, None) == 1
    assert "planted in 3" in capsys.readouterr().out


def test_a_checker_that_checked_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_batch([4])
    assert report(result, 1.0) == 0
    result.count["check: bindings"] = 0
    assert report(result, 1.0) == 1
    assert "nothing was checked: bindings" in capsys.readouterr().out


def test_a_run_of_many_seeds_that_leaves_something_untouched_fails() -> None:
    checks = {f"check: {name}": 1 for name in (*CHECKS, *AT_REST, *MANY)}
    few = Result(Counter(checks), [], ALL - 1, [2_000])
    assert wrongs(few) == []
    many = Result(Counter(checks), [], ALL, [2_000])
    assert [line.partition(":")[0] for line in wrongs(many)] == [
        "never touched, events",
        "never touched, fault points",
        "never touched, refusals",
    ]
    assert "| looks | 1 |" in page(many, "the command")


def test_a_seed_that_says_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sim.run.STEPS_MIN", 1_000_000)
    assert live(9).kind == "a seed of too few steps"
    assert live(9, [0, 1]).kind == ""


def test_nobody_stores_anything_while_the_server_is_away() -> None:
    away = (Event(24.542, "server", 275, 957, 15.661), Event(34.072, "stray", 382, 538, 1.885))
    assert live(1276, [0, 1], change=lambda story: msgspec.structs.replace(story, events=away)).kind == ""


def test_a_cell_rests_while_heavy_jobs_that_wait_are_scored_again_in_turns() -> None:
    heavy = (Event(3.94, "heavy", 411, 132, 0.241), Event(50.241, "heavy", 126, 288, 0.177))
    settings = CellSettings(dispatchers=2, shape_s=0.1)
    assert live(60, [0, 1], change=lambda story: Story(story.kind, settings, heavy)).kind == ""


def test_what_was_never_touched_is_named() -> None:
    assert "append.after" in untouched(Counter(), ALL)["fault points"]
    assert "append.after" not in untouched(Counter({"point: append.after": 1}), ALL)["fault points"]
    usual = {*WEIGHTS, *QUEUES}
    assert set(untouched(Counter(), ALL)["events"]) == usual
    owners = {"scale", "rollout", "rename", "regroup", "refuse"}
    assert set(untouched(Counter(), OWNERS_FROM + ALL)["events"]) == usual | owners
    fences = {"doubt", "rival", "stray"}
    assert set(untouched(Counter(), CONTESTED_FROM + ALL)["events"]) == usual | owners | fences
    assert (
        fences | owners
        == {event.verb for seed in range(CONTESTED_FROM, CONTESTED_FROM + ALL) for event in draw(seed).events} - usual
    )


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ("x", "'x': expected numbers such as 0-3,9, or none"),
        ("", "'': expected numbers such as 0-3,9, or none"),
        ("3-", "'3-': expected"),
        ("0-9999999999", "'0-9999999999': there is no 9999999999; the seed has {count} now, from 0 on"),
        ("1,{count}", "'1,{count}': there is no {count}; the seed has {count} now"),
    ],
)
def test_events_that_a_seed_does_not_have_are_said(ranges: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(draw(3).events)
    assert again(3, ranges.format(count=count)) == 2
    assert f"--events {why.format(count=count)}" in capsys.readouterr().out


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
