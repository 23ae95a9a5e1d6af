"""Each command on a page is run by a test, or listed with the reason why not; what finds and compares them works."""

import re
from pathlib import Path

import pytest

from tests.support.page_commands import ROOT, Block, Shown, agrees, blocks_of
from tests.support.page_plan import BEFORE, NOT_RUN, name_of, pages, reason_against, run_pages, to_run

PROGRAMS = "berth|kubectl|helm|docker|nats|make|python|pytest|openssl"

each_page = pytest.mark.parametrize("page", pages(), ids=name_of)


@each_page
def test_blocks_with_commands_are_marked_as_such(page: Path) -> None:
    text = page.read_text("utf-8")
    assert [block.line for block in blocks_of(text) if block.kind != "console"] == []
    others = re.findall(r"^ *```(?!console)\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    assert [body for body in others if re.match(rf"\s*(?:{PROGRAMS}) ", body) and "─" not in body] == []


def test_every_reason_is_about_a_command() -> None:
    commands = {
        name_of(page): [shown.command for block in blocks_of(page.read_text("utf-8")) for shown in block.shown]
        for page in pages()
    }
    unused = [
        (page, start)
        for page, reasons in NOT_RUN.items()
        for start in reasons
        if not any(command.startswith(start) for command in commands[page])
    ]
    assert unused == []
    assert all(len(reason) > 20 for reasons in NOT_RUN.values() for reason in reasons.values())


def test_files_that_reasons_name_exist() -> None:
    named = {
        name
        for reasons in NOT_RUN.values()
        for reason in reasons.values()
        for name in re.findall(r"tests/[\w/.]+\w", reason)
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_the_pages_that_a_new_user_follows_are_run() -> None:
    run = {name_of(page) for page in run_pages()}
    assert {"README.md", "docs/tutorial.md", "docs/programs.md", "docs/replay.md", "docs/simulate.md"} <= run
    howtos = {page.stem for page in (ROOT / "docs" / "howto").glob("*.md") if name_of(page) not in run}
    assert howtos == {
        "README",
        "add-a-nats-user",
        "install",
        "install-with-helm",
        "open-the-gateway",
        "priorities",
        "run-one-process",
        "run-with-compose",
        "switch-over",
        "trace-jobs",
        "troubleshoot-nats",
    }
    assert BEFORE.keys() <= run
    assert sum(len(to_run(page)) for page in run_pages()) > 80


def test_what_a_page_runs_in_another_terminal_is_stopped() -> None:
    for page in (ROOT / "docs" / "howto").glob("*.md"):
        shown = [one for _, one in to_run(page)]
        started = [one for one in shown if one.command.startswith(("berth up", "nats-server"))]
        assert len([one for one in shown if one.stopped]) >= len(started), page


def test_commands_are_found_with_their_output() -> None:
    text = "a\n\n    ```console\n    $ one\n    out\n    $ cat > x <<'END'\n    in\n    END\n    $ two \\\n        more\n    ```\n"
    assert blocks_of(text) == [
        Block(
            3, "console", [Shown("one", "out\n"), Shown("cat > x <<'END'\nin\nEND", ""), Shown("two \\\n    more", "")]
        )
    ]
    assert blocks_of("```text\nno command\n```\n") == []
    assert blocks_of("```\n$ one\n```\n")[0].kind == ""
    assert blocks_of("<!-- Ctrl-C: berth up -->\n")[0].shown == [Shown("", "", "berth up")]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n", "a\n"),
        ("a ... c\n", "a b c\n"),
        ("a\n...\n", "a\nb\nc\n"),
        ("a\n...\nd\n", "a\nd\n"),
        ("a\n...\nd\n", "a\nb\nc\nd\n"),
        ("...\nd\n", "a\nd\n"),
        ("a  \nb\n", "a\nb  \n\n"),
    ],
)
def test_an_output_is_the_shown_one(shown: str, printed: str) -> None:
    assert agrees(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n", "b\n"),
        ("a\n", "a\nb\n"),
        ("a\nb\n", "a\n"),
        ("a ... c\n", "a b d\n"),
        ("a\n...\nd\n", "a\nb\n"),
        ("a.c\n", "abc\n"),
    ],
)
def test_another_output_is_noticed(shown: str, printed: str) -> None:
    assert not agrees(shown, printed)


def test_the_first_reason_that_fits_counts() -> None:
    assert reason_against("docs/cli/jobs.md", "berth jobs --all")
    assert not reason_against("docs/cli.md", "berth completion bash")
    assert not reason_against("docs/howto/secure.md", "berth keys list keys")
