"""``berth completion``: the script of each shell, tried in the shell where the machine has it."""

import os
import pty
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.commands import all_commands

CASES = (
    ("berth s", {"status", "submit", "switches", "superpods", "simulate", "streams"}),
    ("berth dead ", {"list", "show", "replay", "purge"}),
    ("berth simulate --pol", {"--policy"}),
    ("berth simulate --policy ", {"fifo", "skip", "easy", "conservative"}),
    ("berth completion ", {"bash", "zsh", "fish"}),
)
ASK_BASH = """
source "$1"
COMP_WORDS=($2)
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$(complete -p berth | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script for each shell, under the names that the page gives them."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell, name in (("bash", "berth"), ("zsh", "_cyclopts_berth"), ("fish", "berth.fish")):
        with pytest.MonkeyPatch.context() as patch, (folder / name).open("w") as file:
            patch.setattr("sys.stdout", file)
            assert call(["completion", shell]) == 0
    return folder


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout  # noqa: S603  # a shell


@pytest.mark.parametrize("name", ["berth", "_cyclopts_berth", "berth.fish"])
def test_a_script_has_all_commands_and_their_parts(name: str, scripts: Path) -> None:
    text = (scripts / name).read_text()
    for command in all_commands():
        assert command.name in text
        for part in command.parts:
            assert part.name in text


def see_bash_complete(scripts: Path) -> None:
    for words, expected in CASES:
        assert set(run("bash", "-c", ASK_BASH, "bash", str(scripts / "berth"), words).split()) == expected


FISH_FILES = (
    ("berth ", False),
    ("berth dead ", False),
    ("berth cancel ", False),
    ("berth jobs --cell ", False),
    ("berth log ", True),
    ("berth keys init ", True),
    ("berth submit ", True),
    ("berth demo --record ", True),
    ("berth simulate --cluster ", True),
)
"""Words, and whether fish offers files after them."""


def see_fish_complete(scripts: Path) -> None:
    for words, expected in CASES:
        assert expected <= _fish_offers(scripts, words)
    for words, has_files in FISH_FILES:
        assert ("berth.fish" in _fish_offers(scripts, words)) == has_files, words


def _fish_offers(scripts: Path, words: str) -> set[str]:
    """What fish offers after some words in the folder of the scripts."""
    found = run("fish", "--no-config", "-c", f"cd {scripts}; source berth.fish; complete -C '{words}'")
    return {line.split("\t")[0] for line in found.splitlines()}


def see_zsh_complete(scripts: Path) -> None:
    for typed, completed in (("dead pu", "dead purge"), ("simulate --policy ea", "simulate --policy easy")):
        process, terminal = pty.fork()
        if not process:
            os.execlp("zsh", "zsh", "-f", "-i")  # noqa: S606, S607  # the shell of this machine
        try:
            setup = f"fpath=({scripts} $fpath); autoload -Uz compinit; compinit -D -u; echo READY$((6*7))\n"
            os.write(terminal, setup.encode())
            assert "READY42" in _until(terminal, "READY42")
            os.write(terminal, f"berth {typed}\t".encode())
            assert completed in _until(terminal, completed)
        finally:
            os.write(terminal, b"\x15exit\n")
            os.close(terminal)
            os.waitpid(process, 0)


SHELLS = {"bash": see_bash_complete, "fish": see_fish_complete, "zsh": see_zsh_complete}


def test_bash_offers_files_where_nothing_else_is_known(scripts: Path) -> None:
    rule = run("bash", "-c", 'source "$1"; complete -p berth', "bash", str(scripts / "berth"))
    assert rule.split() == ["complete", "-o", "default", "-F", "_berth", "berth"]


def test_zsh_offers_files_for_arguments_that_are_files_or_something_else(scripts: Path) -> None:
    lines = [line.strip() for line in (scripts / "_cyclopts_berth").read_text().splitlines()]
    arguments = [line for line in lines if line.startswith(("'*:", "'1:")) and line.endswith("' \\")]
    files = [line for line in arguments if line.endswith(":_files' \\")]
    for text in ("Manifests in YAML", "The file to write, or an object", "A backup, made by", "A recording, made by"):
        assert any(text in line for line in files), text
    assert not any(text in line for text in ("The jobs", "The node", "Its name") for line in files)
    assert not any(":_files:_files" in line for line in lines)


def test_fish_offers_files_only_where_a_file_is_expected(scripts: Path) -> None:
    lines = (scripts / "berth.fish").read_text().splitlines()
    without = {line.split("'")[1] for line in lines if line.endswith("' -f")}
    for words in ("jobs", "dead", "dead show", "cancel", "simulate"):
        assert f"__fish_berth_using_command {words}" in without
    for words in ("log", "submit", "keys", "keys init", "backup", "check-config"):
        assert f"__fish_berth_using_command {words}" not in without


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell) is not None])
def test_a_shell_that_the_machine_has_completes(shell: str, scripts: Path) -> None:
    SHELLS[shell](scripts)


def _until(terminal: int, wanted: str) -> str:
    """What the shell printed up to a text, or within ten seconds of silence."""
    found = ""
    while wanted not in found and select.select([terminal], [], [], 10)[0]:
        found += os.read(terminal, 65536).decode(errors="replace")
    return found
