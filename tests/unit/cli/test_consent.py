"""A person is asked on a terminal before a command changes something."""

import asyncio
import os
import pty
import sys
from collections.abc import Iterator

import pytest

from berth.cli.consent import ask_consent
from berth.cli.output import CommandError


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What is written here is typed on the terminal from which the command reads."""
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal, encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield keyboard
    os.close(keyboard)


@pytest.mark.parametrize(
    ("typed", "agrees"), [("y", True), ("YES ", True), ("n", False), ("", False), ("yesterday", False)]
)
async def test_only_yes_is_consent_and_the_terminal_is_left_as_it_was(
    keyboard: int,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    agrees: bool,  # noqa: FBT001 - a case
) -> None:
    os.set_blocking(keyboard, True)
    asked = asyncio.get_running_loop().create_task(ask_consent("Remove it", "berth x --yes", yes=False), name="ask")
    os.write(keyboard, f"{typed}\n".encode())
    if agrees:
        await asked
    else:
        with pytest.raises(CommandError, match="nothing was changed; make the change with: berth x --yes"):
            await asked
    assert capsys.readouterr().err == "Remove it? [y/N] "
    stdin = sys.stdin.fileno()
    assert not asyncio.get_running_loop().remove_reader(stdin), "nothing reads it any more"
    assert os.get_blocking(stdin)


async def test_who_is_interrupted_is_asked_no_more(keyboard: int) -> None:
    asked = asyncio.get_running_loop().create_task(ask_consent("Remove it", "berth x", yes=False), name="ask")
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    os.write(keyboard, b"y\n")
    assert asked.cancelled()
    assert not asyncio.get_running_loop().remove_reader(sys.stdin.fileno())


async def test_what_is_agreed_already_is_not_asked(keyboard: int, capsys: pytest.CaptureFixture[str]) -> None:
    del keyboard  # nobody types
    await ask_consent("Remove it", "berth x", yes=True)
    assert capsys.readouterr().err == ""
