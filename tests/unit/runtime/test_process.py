"""Life of a process: each way to end has its exit code, and says why."""

import asyncio
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import structlog

from berth.lab.servers.ports import free_ports
from berth.runtime import logs, process
from berth.runtime.config import ConfigError, LogConfig, ServiceConfig
from berth.runtime.errors import FatalError
from berth.runtime.logs import DEFAULT_LOG as LOG
from tests.support.compiled_files import COMPILED_FILES


@pytest.fixture(autouse=True)
def printed() -> Iterator[io.StringIO]:
    """What the process logs; signals and logs are as before afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("test", LogConfig(form="json"), stream)
    yield stream
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.SIGNALS)
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(printed: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed.getvalue().splitlines()]


async def until_asked(stop: asyncio.Event) -> None:
    await stop.wait()


async def for_ever(_: asyncio.Event) -> None:
    await asyncio.Event().wait()


async def early(_: asyncio.Event) -> None:
    await asyncio.sleep(0)


async def broken(_: asyncio.Event) -> None:
    raise RuntimeError("broken")


async def cancelled(_: asyncio.Event) -> None:
    raise asyncio.CancelledError


async def misconfigured(_: asyncio.Event) -> None:
    raise ConfigError(field="bus.url", value="'x'", expected="an address")


async def lose_the_bus() -> None:
    raise FatalError("the bus is lost")


async def see_nothing() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("number", process.SIGNALS)
def test_a_signal_asks_for_the_end_and_a_service_that_ends_then_exits_0(number: int) -> None:
    async def work(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), number)
        await process.supervise(until_asked, stop=stop, grace_s=5, guards=[see_nothing()])

    assert process.run(work, LOG) == 0


def test_a_service_that_ends_unasked_exits_1_and_says_so(printed: io.StringIO) -> None:
    async def work(stop: asyncio.Event) -> None:
        await process.supervise(early, stop=stop, grace_s=5)

    assert process.run(work, LOG) == 1
    (line,) = lines(printed)
    assert (line["event"], line["service"], line["level"]) == ("fatal error", "test", "error")
    assert line["reason"] == "the service ended unexpectedly"


def test_a_service_that_cancels_itself_exits_1() -> None:
    async def work(stop: asyncio.Event) -> None:
        await process.supervise(cancelled, stop=stop, grace_s=5)

    assert process.run(work, LOG) == 1


def test_work_that_outlives_the_grace_exits_1(printed: io.StringIO) -> None:
    async def work(stop: asyncio.Event) -> None:
        stop.set()
        await process.supervise(for_ever, stop=stop, grace_s=0.01)

    assert process.run(work, LOG) == 1
    assert "within 0.01 s" in str(lines(printed)[0]["reason"])


def test_an_unforeseen_error_exits_1_with_its_traceback(printed: io.StringIO) -> None:
    async def work(stop: asyncio.Event) -> None:
        await process.supervise(broken, stop=stop, grace_s=5)

    assert process.run(work, LOG) == 1
    (line,) = lines(printed)
    assert line["event"] == "unexpected error"
    assert "RuntimeError('broken')" in str(line["reason"])
    assert line["exception"]


def test_a_wrong_setting_exits_2(printed: io.StringIO) -> None:
    assert process.run(misconfigured, LOG) == 2
    assert lines(printed)[0]["reason"] == "setting bus.url is 'x': an address"


def test_a_guard_that_fails_ends_the_service_with_1(printed: io.StringIO) -> None:
    async def work(stop: asyncio.Event) -> None:
        await process.supervise(for_ever, stop=stop, grace_s=5, guards=[lose_the_bus()])

    assert process.run(work, LOG) == 1
    assert [line["reason"] for line in lines(printed)] == ["the bus is lost"]


def test_a_fault_while_ending_exits_1() -> None:
    async def fail_at_the_end(stop: asyncio.Event) -> None:
        await stop.wait()
        raise RuntimeError("at the end")

    async def work(stop: asyncio.Event) -> None:
        stop.set()
        await process.supervise(fail_at_the_end, stop=stop, grace_s=5)

    assert process.run(work, LOG) == 1


def test_a_signal_that_comes_after_the_end_does_not_change_the_exit_code() -> None:
    assert process.run(broken, LOG) == 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) >= set(process.SIGNALS)


def test_the_worst_exit_code_of_several_errors_counts(printed: io.StringIO) -> None:
    errors = ExceptionGroup(
        "two", [FatalError("one"), ExceptionGroup("one", [ConfigError(field="a", expected="b")]), ValueError("c")]
    )
    assert process.report(errors, LOG) == 2
    assert len(lines(printed)) == 3


def test_lines_of_libraries_have_the_same_form(printed: io.StringIO) -> None:
    logging.getLogger("library").warning("slow %s", "reader")
    logging.getLogger("library").info("chatter")
    (line,) = lines(printed)
    assert (line["event"], line["service"], line["logger"], line["level"]) == (
        "slow reader",
        "test",
        "library",
        "warning",
    )


def test_levels_below_the_setting_are_silent_and_context_is_bound(printed: io.StringIO) -> None:
    log = LOG.bind(shard=3)
    log.debug("nothing")
    log.info("offer sent", took_ms=2)
    (line,) = lines(printed)
    assert (line["event"], line["shard"], line["took_ms"]) == ("offer sent", 3, 2)


def test_a_person_reads_text(printed: io.StringIO) -> None:
    logs.configure("test", LogConfig(form="text"), printed)
    LOG.info("offer sent", took_ms=2)
    assert "offer sent" in printed.getvalue()


PROCESSES: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    yield
    while PROCESSES:
        with PROCESSES.pop() as process:
            process.kill()


PROGRAM = """
import asyncio
from berth.runtime.config import ServiceConfig
from berth.runtime.process import main

async def serve(bus, clock, config, instruments, stop):
    await stop.wait()

main("test", ServiceConfig, lambda registry: registry, serve)
"""


def started(tmp_path: Path, settings: str) -> subprocess.Popen[str]:
    path = tmp_path / "test.toml"
    path.write_text(settings)
    process = subprocess.Popen(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-c", PROGRAM, "--config", str(path)],
        cwd=Path(__file__).parents[3],
        env={**COMPILED_FILES},
        stderr=subprocess.PIPE,
        text=True,
    )
    PROCESSES.append(process)
    return process


def test_a_process_with_a_wrong_setting_exits_2_and_names_it(tmp_path: Path) -> None:
    _, err = (process := started(tmp_path, "grace_s = 0")).communicate(timeout=30)
    assert process.returncode == 2
    assert json.loads(err)["reason"] == "setting grace_s is 0: Expected `float` > 0.0"


def test_a_process_that_finds_no_bus_exits_1_and_says_where_it_looked(tmp_path: Path) -> None:
    settings = '[bus]\nurl = "nats://127.0.0.1:1"\nconnect_timeout_s = 0.2\n'
    _, err = (process := started(tmp_path, settings)).communicate(timeout=30)
    assert process.returncode == 1
    assert "127.0.0.1:1" in err.splitlines()[-1]


def test_probes_answer_while_the_bus_is_looked_for(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    process = started(tmp_path, f'[bus]\nurl = "nats://127.0.0.1:1"\n[probes]\nport = {port}\n')
    assert process.stderr is not None
    listening = json.loads(process.stderr.readline())
    assert (listening["event"], listening["port"]) == ("probe server started", port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10)
    assert (caught.value.code, caught.value.read()) == (503, b"the bus has not been connected yet\n")
    caught.value.close()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_process_whose_secret_is_not_there_exits_2_and_names_it(tmp_path: Path) -> None:
    settings = '[bus]\nuser = "berth"\npassword_file = "/nowhere/secret"\n'
    _, err = (process := started(tmp_path, settings)).communicate(timeout=30)
    assert process.returncode == 2
    assert json.loads(err.splitlines()[-1])["reason"] == (
        "setting bus.password_file is '/nowhere/secret': a file that can be read (No such file or directory)"
    )


def test_a_process_that_is_asked_to_stop_while_it_connects_exits_0(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = started(tmp_path, f'[bus]\nurl = "nats://127.0.0.1:{port}"\n')
        listener.settimeout(30)
        connection, _ = listener.accept()  # it is connecting now, and gets no word
        with connection:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("level", "printed_levels"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
@pytest.mark.parametrize("is_service", [False, True])
def test_a_level_lets_itself_and_what_is_worse_through(
    level: Literal["debug", "info", "warning", "error"],
    printed_levels: list[str],
    printed: io.StringIO,
    *,
    is_service: bool,
) -> None:
    config = LogConfig(form="json", level=level)
    logs.configure("test", config, printed)
    log = logs.logger_of("test", config, printed) if is_service else LOG
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("something")
    assert [line["level"] for line in lines(printed)] == printed_levels


def test_settings_that_are_wrong_end_a_process_with_2_before_it_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test.toml"
    path.write_text("grace_s = 'soon'\n", "utf-8")
    monkeypatch.setattr("sys.argv", ["test", "--config", str(path)])
    monkeypatch.setattr("faulthandler.enable", lambda: None)  # of all tests
    monkeypatch.setattr("gc.set_threshold", lambda *_: None)

    async def serve(*_: object) -> None:
        raise AssertionError("it must not run")

    with pytest.raises(SystemExit) as caught:
        process.main("test", ServiceConfig, lambda registry: registry, serve)
    assert caught.value.code == process.MISCONFIGURED
    assert "grace_s" in capsys.readouterr().err
