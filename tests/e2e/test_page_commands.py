"""Commands of the pages are run as a reader would run them, and print what the pages show.

Commands that are not run are listed with their reasons in ``tests/support/page_plan.py``; a contract test compares.
"""

from pathlib import Path

import pytest

from berth.lab.servers.ports import free_ports
from tests.support.page_commands import Shown, Terminal
from tests.support.page_plan import BEFORE, name_of, run_pages, to_run

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("page", run_pages(), ids=name_of)
async def test_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    terminal = Terminal(tmp_path / "tree", port)
    try:
        for command in BEFORE.get(name_of(page), ()):
            await terminal.run(Shown(command, ""), may_fail=False)
        commands = to_run(page)
        for number, (_, shown) in enumerate(commands):
            following = commands[number + 1][1].command if number + 1 < len(commands) else ""
            await terminal.run(shown, may_fail=following == "echo $?")
    finally:
        await terminal.close()
