"""``commands``: how long commands take, from the start of the process to its end, beside bare imports.

The limit is an interpreter that imports the libraries which the command cannot do without. Both take turns.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.ends import EndedError, ended_text, nats_server, until_done
from bench.report import Report, Row, machine, row
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName

_HELP_TARGET_MS: Final = 100.0
_JOBS_TARGET_MS: Final = 200.0
_DOWN_TARGET_MS: Final = 1000.0
_JOBS: Final = 100
_MANIFEST: Final = {
    "apiVersion": "berth/v1",
    "kind": "Job",
    "metadata": {"name": "sent", "namespace": "ml"},
    "spec": {"product": "module910bx8", "chips": 8},
}
_CELL: Final = "bench"
_BERTH: Final = (str(Path(sys.executable).with_name("berth")),)
_HELP_LIMIT: Final = (sys.executable, "-c", "import cyclopts, rich.console")
_JOBS_LIMIT: Final = (sys.executable, "-c", "import nats, msgspec, rich.console")


class Size(NamedTuple):
    """Size of a run: how often each command runs."""

    rounds: int = 20


FULL: Final = Size()
SMALL: Final = Size(rounds=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rounds = size.rounds
    rows = _compared("berth --help", (*_BERTH, "--help"), _HELP_LIMIT, _HELP_TARGET_MS, rounds)
    rows += until_done(_server_rows(rounds))
    return Report(bench="commands", machine=machine(), rows=rows + _down_rows(rounds))


async def _server_rows(rounds: int) -> list[Row]:
    """Commands that ask a server with a cell of some jobs."""
    with tempfile.TemporaryDirectory(prefix="berth-commands-") as folder:
        async with nats_server(Path(folder)) as server:
            async with await NatsBus.connect(server.url, _CELL, name="bench", inbox="_INBOX.person.bench") as bus:
                await bus.ensure_streams()
                for number in range(_JOBS):
                    status = JobStatus(
                        "ml", f"job-{number:03}", f"uid-{number}", "waiting", 1, 1, sentence="no node has 8 free chips"
                    )
                    await bus.publish(bus.subjects.status(status.namespace, status.name), encode(status))
            where = ("--url", server.url, "--cell", _CELL)
            rows = await asyncio.to_thread(
                _compared, f"berth jobs, {_JOBS} jobs", (*_BERTH, "jobs", *where), _JOBS_LIMIT, _JOBS_TARGET_MS, rounds
            )
            status_ms = [
                (await asyncio.to_thread(_cost, (*_BERTH, "status", *where), 1)).took_ms for _ in range(rounds)
            ]
            rows.append(row("berth status, no process runs", "time", "ms", status_ms))
            file = Path(folder) / "job.json"
            file.write_text(json.dumps(_MANIFEST), "utf-8")
            async with _accepting(server.url):
                return rows + await asyncio.to_thread(
                    _compared,
                    "berth submit, one job",
                    (*_BERTH, "submit", str(file), *where),
                    _JOBS_LIMIT,
                    None,
                    rounds,
                )


@asynccontextmanager
async def _accepting(url: str) -> AsyncIterator[None]:
    """Accepts each request at once in place of a dispatcher, so that only the command takes time."""
    async with await NatsBus.connect(url, _CELL, name="bench-accepts") as bus, asyncio.TaskGroup() as group:
        queue = asyncio.Queue[Stored]()

        async def answer() -> None:
            while True:
                stored = await queue.get()
                request = decode(stored.data, JobRequest)
                key = (request.namespace, request.name)
                seen = JobSeen(*key, request.uid, "accepted", stored.sequence, stored.sequence, request=request)
                await bus.publish(bus.subjects.fact_job(*key), encode(seen))
                await bus.publish(bus.subjects.status(*key), encode(JobStatus(*key, request.uid, "waiting", 1, 1)))

        follower = bus.follow(StreamName.INTAKE, on_message=queue.put_nowait, on_gap=lambda _: None)
        await follower.caught_up.wait()
        answering = group.create_task(answer())
        try:
            yield
        finally:
            answering.cancel()
            await follower.stop()


def _down_rows(rounds: int) -> list[Row]:
    """Servers that are down: nothing listens, or what listens says nothing."""
    rows = []
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = {"nothing listens": closed.getsockname()[1], "the server is silent": silent.getsockname()[1]}
        closed.close()
        for case, port in ports.items():
            times = [_first_line_ms((*_BERTH, "jobs", "--url", f"nats://127.0.0.1:{port}")) for _ in range(rounds)]
            rows.append(row(f"berth jobs, {case}", "until it says so", "ms", times, target=_DOWN_TARGET_MS))
    return rows


def _compared(
    case: str, command: Sequence[str], limit: Sequence[str], target_ms: float | None, rounds: int
) -> list[Row]:
    ours: list[_Cost] = []
    bare: list[_Cost] = []
    for words in (command, limit):  # compiles the modules
        _cost(words)
    for number in range(rounds):
        for turn in (number % 2, 1 - number % 2):
            (ours if turn else bare).append(_cost(command if turn else limit))
    times = row(case, "time", "ms", [one.took_ms for one in ours], limits=[one.took_ms for one in bare])
    above = row(case, "above the limit", "ms", [times.value - (times.limit or 0.0)], target=target_ms, can_be_zero=True)
    return [times, above, row(case, "CPU", "ms", [one.cpu_ms for one in ours], limits=[one.cpu_ms for one in bare])]


class _Cost(NamedTuple):
    """Of a process: from its start to its end, and CPU, which depends less on what else the machine does."""

    took_ms: float
    cpu_ms: float


def _cost(command: Sequence[str], code: int = 0) -> _Cost:
    """Cost of a command.

    Raises:
        EndedError: Its exit code is another one than expected.
    """
    start_s = time.perf_counter()
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process,  # noqa: S603  # our own command
    ):
        _, status, used = os.wait4(process.pid, 0)
        took_s = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != code:
            log.seek(0)
            how = f"ended with exit code {process.returncode}, expected {code},"
            raise EndedError(ended_text(" ".join(command), how, log.read().decode(errors="replace")))
    return _Cost(took_s * 1000, (used.ru_utime + used.ru_stime) * 1000)


def _first_line_ms(command: Sequence[str]) -> float:
    """Time until the first line on stderr.

    Raises:
        RuntimeError: There was none.
    """
    start_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:  # noqa: S603  # our own command
        if process.stderr is None or not process.stderr.readline():
            raise RuntimeError(f"{' '.join(command)} said nothing")
        took_ms = (time.perf_counter() - start_s) * 1000
        process.terminate()
    return took_ms
