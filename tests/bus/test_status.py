"""``berth status`` of a cell on a real server whose services do not run: a problem, in the form that is asked for."""

import asyncio
import json

import pytest

from berth.cli.app import call
from berth.runtime.bus.nats_bus import NatsBus


@pytest.fixture(name="cell")
def empty_cell(cell: str, nats_server: str) -> str:
    """A cell of streams without messages."""

    async def make() -> None:
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()

    asyncio.run(make())
    return cell


@pytest.mark.parametrize("words", [["-o", "json"], ["--json"], ["--json", "-o", "text"]])
def test_json_has_the_problems(
    words: list[str], cell: str, nats_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["status", *words, "--url", nats_server, "--cell", cell]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["problems"]
    assert not found["ok"]
    assert printed.err == ""


@pytest.mark.parametrize("words", [[], ["-o", "text"]])
def test_text_has_the_problems_as_errors(
    words: list[str], cell: str, nats_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["status", *words, "--url", nats_server, "--cell", cell]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(f"cell           {cell}\nleader         none that answers\n")
    assert printed.err.startswith("error: ")
