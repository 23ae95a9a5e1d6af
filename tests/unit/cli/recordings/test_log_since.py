"""``berth log --since``: the last hours of a live cell, of all, of a job, and of a node."""

import asyncio
import json

import pytest

from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.cells import Cell, a_job, a_node
from tests.support.own_command import OwnCommand

LONG = "3000d"
"""Cells of tests live in the year 2023."""


async def a_cell() -> Cell:
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("one", chips=8), a_job("other", chips=8))
    await cell.turns(2)
    domain = cell.dispatcher.state.table.domains[0]
    well = NodeCondition("b")
    for unhealthy in (0b1000, 0b1000, 0):
        await cell.health(domain, [NodeCondition("a", unhealthy=unhealthy, reason="hot" if unhealthy else ""), well])
        await cell.settle()
    await cell.health(domain, [NodeCondition("a"), NodeCondition("b", level=NodeHealth.EVICT)])
    await cell.settle()
    await cell.close()
    return cell


@pytest.fixture(name="berth")
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> OwnCommand:
    return OwnCommand(monkeypatch, capsys, asyncio.run(a_cell()).server)


def lines(berth: OwnCommand, *words: str) -> list[str]:
    code, out, err = berth("log", "--since", LONG, *words)
    assert code == 0, err
    return [line.split("UTC", 1)[-1].strip() for line in out.splitlines()]


def test_all_that_is_stored_is_printed_up_to_now(berth: OwnCommand) -> None:
    found = lines(berth)
    assert any("placed default/one on a (8 chips)" in line for line in found)
    assert sum(line.startswith("health of ") for line in found) == 4


def test_of_a_job_nothing_of_others_is_printed(berth: OwnCommand) -> None:
    found = lines(berth, "--job", "one")
    assert found[0].startswith("job default/one accepted")
    assert "round 1: placed default/one on a (8 chips)" in found
    assert not any("other" in line for line in found)
    assert lines(berth, "--job", "ml/one") == []


def test_of_a_node_each_change_is_printed_once_with_the_jobs_there(berth: OwnCommand) -> None:
    found = lines(berth, "--node", "a")
    assert [line for line in found if line.startswith("health")] == [
        "health of a: chips 3 unhealthy (hot)",
        "health of a: ok",
    ]
    assert "node a: ready, 8 chips allocatable" in found
    assert any("placed default/one on a" in line for line in found)
    assert not any("default/other" in line for line in found)
    assert "health of b: evict" in lines(berth, "--node", "b")


def test_as_json_messages_are_narrowed_too(berth: OwnCommand) -> None:
    code, out, err = berth("log", "--since", LONG, "--job", "one", "--json")
    assert code == 0, err
    trees = [json.loads(line) for line in out.splitlines()]
    (names,) = {tuple(one["name"] for one in tree["body"]["verdicts"]) for tree in trees if tree["what"] == "record"}
    assert names == ("one",)


def test_nothing_is_printed_of_a_time_before(berth: OwnCommand) -> None:
    assert berth("log", "--since", "1h")[:2] == (0, "")


@pytest.mark.parametrize("words", [(), ("x.rec", "--since", "1h"), ("--since", "soon")])
def test_wrong_use(words: tuple[str, ...], berth: OwnCommand) -> None:
    code, out, err = berth("log", *words)
    assert (code, out) == (2, ""), err
