"""The process of a command: output that cannot be written, unexpected arguments, errors on one line."""

import os
import pathlib
import subprocess
import sys

import pytest

from berth.cli.app import call


@pytest.mark.parametrize(
    "words",
    [("--help",), ("completion", "bash"), ("check-config", "dispatcher", "/dev/null")],
    ids=lambda words: words[0],
)
def test_a_full_disk_is_one_line(words: tuple[str, ...]) -> None:
    with pathlib.Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603  # our own command
            [sys.executable, "-m", "berth.cli", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == "error: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


def test_a_reader_that_closed_the_pipe_is_no_error() -> None:
    here, there = os.pipe()
    os.close(here)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "berth.cli", "completion", "bash"], stdout=there, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(there)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_while_modules_are_imported_is_no_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'cyclopts': os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from berth.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)  # noqa: S603  # our own code
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("jobs", "foo"), "argument is 'foo', expected no such argument; see: berth jobs --help"),
        (("dead", "list", "x"), "argument is 'x', expected no such argument; see: berth dead list --help"),
        (("replay", "a\nb"), "a\\nb cannot be read: No such file or directory"),
    ],
)
def test_an_error_is_one_line(words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(list(words)) == 2
    assert capsys.readouterr().err == f"error: {error}\n"
