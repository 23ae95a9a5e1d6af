"""``berth up`` and ``berth demo``: the commands that they name next, and the exit code after a signal."""

import signal

import pytest

from berth.lab.commands.up import Stop, options_of


@pytest.mark.parametrize(
    ("port", "cell", "wanted"),
    [
        (4222, "default", ""),
        (4222, "mine", " --cell mine"),
        (15099, "default", " --url nats://127.0.0.1:15099"),
        (15099, "my cell", " --url nats://127.0.0.1:15099 --cell 'my cell'"),
    ],
)
def test_next_commands_reach_the_cell(port: int, cell: str, wanted: str) -> None:
    assert options_of(port, f"nats://127.0.0.1:{port}", cell) == wanted


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_command_that_is_stopped_early_says_by_which_signal(number: signal.Signals, code: int) -> None:
    stop = Stop()
    stop.ask(number)
    assert stop.is_set()
    assert stop.early().code == code
