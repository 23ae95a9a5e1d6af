"""Dead letters and the status of a cell on real servers and processes, with the commands of people."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from berth.core.requests.dead_reasons import CODES, INTERNAL
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.clock import SystemClock
from berth.runtime.dead_letters.letters import find_letter, read_letters
from berth.runtime.dead_letters.writing import dead_letter
from berth.schemas.envelope import encode
from berth.schemas.subjects import StreamName
from tests.e2e.test_foreign_messages import CLUSTER, runs
from tests.support import command
from tests.support.cells import a_job
from tests.support.load import status
from tests.support.processes import Service, services
from tests.support.waiting import pause, until_true

NAIVE = b'{"namespace": "default", "name": "naive", "chips": 8}'


class Cell:
    """A cell with real services."""

    def __init__(self, bus: NatsBus, url: str, name: str, running: dict[str, Service]) -> None:
        self.bus = bus
        self.running = running
        self._url = url
        self._name = name

    async def berth(self, *words: str) -> tuple[int, str, str]:
        return await command.berth(*words, url=self._url, cell=self._name)

    async def told(self, *words: str) -> Any:  # noqa: ANN401  # any JSON
        code, out, err = await self.berth(*words, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    async def status(self) -> tuple[int, dict[str, Any]]:
        code, out, err = await self.berth("status", "--json")
        assert code in {0, 1}, err
        found: dict[str, Any] = json.loads(out)
        assert found["ok"] == (code == 0) == (not found["problems"])
        return code, found

    async def status_when(self, condition: Callable[[dict[str, Any]], object], *, what: str) -> dict[str, Any]:
        """The status once a condition holds of it: on a busy machine a process may answer too late to count.

        Raises:
            AssertionError: It does not in time; shows the status.
        """
        found: dict[str, Any] = {}

        async def holds() -> bool:
            nonlocal found
            _, found = await self.status()
            return bool(condition(found))

        try:
            await until_true(holds, deadline_s=20, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}, but {found}") from error
        return found

    async def until_printed(self, code: int, texts: Iterable[str]) -> None:
        """Wait until ``berth status`` ends with a code and prints some texts, as :meth:`status_when`.

        Raises:
            AssertionError: It does not in time; shows what it prints.
        """
        found: tuple[int, str, str] = (-1, "", "")

        async def is_so() -> bool:
            nonlocal found
            found = await self.berth("status")
            return found[0] == code and all(text in found[1] + found[2] for text in texts)

        try:
            await until_true(is_so, deadline_s=20, what=f"code {code} of berth status with {texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}, but {found}") from error


@pytest.fixture
async def cell(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> AsyncIterator[Cell]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings: dict[str, dict[str, Any]] = {
        "nodesim": {"topology_file": str(tmp_path / "cluster.yaml")},
        "scorer": {"shards": 1},
        "dispatcher": {"shards": 1},
        "binder": {},
    }
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        with services(tmp_path, own_server.url) as made:
            running = made.cell(cell, settings)
            yield Cell(bus, own_server.url, cell, running)


async def refused(cell: Cell, count: int) -> None:
    """Wait until there are so many dead letters."""
    while len((await read_letters(cell.bus)).letters) < count:
        assert all(service.is_running for service in cell.running.values())
        await pause(0.05)


async def with_letters(cell: Cell) -> tuple[str, str]:
    """A cell that works, with letters of a naive publish and of a request; their names."""
    bus = cell.bus
    subject = bus.subjects.intake_request("default", "late")
    # An error of an earlier release refused this request; its message is one that no release reads.
    sequence = await bus.publish(subject, b"\xff")
    stored = Stored(subject, sequence, encode(a_job("late")), 5)
    await dead_letter(bus, SystemClock(), StreamName.INTAKE, stored, "an error of Berth: KeyError", code=INTERNAL)
    for service in cell.running.values():
        service.start()
    await runs(bus, "first")
    naive = await bus.publish(bus.subjects.intake_request("default", "naive"), NAIVE)
    await refused(cell, 2)
    return f"intake:{naive}", f"intake:{sequence}"


@pytest.mark.timeout(120)
async def test_a_naive_json_publish_is_listed_shown_and_purged_for_good(cell: Cell) -> None:
    naive, late = await with_letters(cell)
    newest, oldest = await cell.told("dead", "list")
    assert (newest["id"], newest["code"], newest["state"]) == (naive, "undecodable", "open")
    assert newest["subject"].endswith(".intake.request.default.naive")
    assert (oldest["id"], oldest["code"]) == (late, INTERNAL)
    assert [one["id"] for one in await cell.told("dead", "--reason", INTERNAL)] == [late]
    code, out, err = await cell.berth("dead", "list", "-n", "1")
    assert (code, "it looks like JSON" in out) == (0, True), err
    assert "1 older letter not listed; list them with -n 0" in err
    shown = await cell.told("dead", "show", naive)
    assert shown["content"] == {"form": "json", "kind": "", "version": 0, "release": "", "body": json.loads(NAIVE)}
    code, out, err = await cell.berth("dead", "show", naive, "--raw")
    assert (code, out.encode()) == (0, NAIVE), err

    code, out, err = await cell.berth("dead", "purge", "--older-than", "1h", "--yes")
    assert (code, out) == (0, "nothing to purge\n"), err
    assert await cell.told("dead", "purge", "--reason", "undecodable", "--yes") == {"purged": [naive]}
    states = {one["id"]: one["state"] for one in await cell.told("dead", "list", "--all")}
    assert states == {naive: "purged", late: "open"}
    # Whoever leads next reads the same messages again, and writes no letter for them.
    await cell.running["dispatcher"].kill()
    cell.running["dispatcher"].start()
    again = await cell.bus.publish(cell.bus.subjects.intake_request("default", "naive"), NAIVE)
    await refused(cell, 3)
    assert [one["id"] for one in await cell.told("dead", "list")] == [f"intake:{again}", late]


@pytest.mark.timeout(120)
async def test_a_request_is_replayed_once_and_runs(cell: Cell) -> None:
    naive, late = await with_letters(cell)
    code, _, err = await cell.berth("dead", "replay", naive, late, "--yes")
    assert code == 1
    assert "would become a dead letter again" in err
    assert "nothing was published" in err
    code, _, err = await cell.berth("dead", "replay", late)  # nobody can be asked
    assert (code, "make the change with: berth dead replay" in err) == (1, True)
    assert (await find_letter(cell.bus, late)).state == "open"
    code, out, err = await cell.berth("dead", "replay", late, "--yes")
    assert code == 0, err
    assert f"{late} is request " in out
    while (found := await status(cell.bus, "late")) is None or found.phase not in {"placed", "bound", "running"}:
        await pause(0.05)
    assert found.uid == "uid-late"
    code, _, err = await cell.berth("dead", "replay", late, "--yes")
    assert (code, "a letter is replayed once" in err) == (1, True)
    _, told = await cell.status()
    assert told["status"]["dead_letters"]["reasons"] == {"undecodable": 1}
    code, out, err = await cell.berth("fsck")
    assert (code, "1 undecodable; see: berth dead list" in out) == (0, True), err


@pytest.mark.processes
@pytest.mark.timeout(120)
async def test_the_status_of_a_cell_says_who_leads_what_runs_and_what_is_missing(cell: Cell) -> None:
    code, found = await cell.status()
    assert code == 1
    assert found["problems"] == [
        "no process of the cell answers on $SRV.STATS: none runs, or the user may not ask there"
    ]
    for service in cell.running.values():
        service.start()
    await runs(cell.bus, "first")

    def is_whole(found: dict[str, Any]) -> bool:
        return bool(found["ok"]) and len(found["status"]["processes"]) >= len(cell.running)

    found = await cell.status_when(is_whole, what="a status of all processes without problems")
    told = found["status"]
    assert [one["service"] for one in told["processes"]] == ["binder", "dispatcher", "nodesim", "scorer"]
    assert [one["is_leader"] for one in told["processes"]] == [False, True, False, False]
    assert told["leader"]["process"] == told["processes"][1]["id"]
    assert told["leader"]["holder"]
    assert told["scorers"] == {"expected": 1, "answering": [0], "missing": []}
    assert set(told["processes"][1]["behind"]) == {"LEDGER", "FACTS", "INTAKE"}
    assert set(told["processes"][3]["behind"]) == {"LEDGER", "FACTS"}
    assert all(lag < 100 for one in told["processes"] for lag in one["behind"].values())
    assert told["decision"]["sequence"] >= 2
    assert told["decision"]["round"] >= 1
    streams = {one["name"]: one for one in told["nats"]["streams"]}
    assert set(streams) == {name.value for name in StreamName}
    assert streams["LEDGER"]["last_seq"] >= told["decision"]["sequence"]
    assert told["nats"]["address"].startswith("127.0.0.1:")
    assert 0 < told["nats"]["round_trip_ms"] < 10_000
    await cell.until_printed(0, ["scorers        1 of 1 shard answer", "leads"])

    await cell.running["scorer"].kill()
    missing = ["scorers do not answer: shards 0"]
    await cell.status_when(lambda found: found["problems"] == missing, what="the scorer alone is missing")
    await cell.running["dispatcher"].kill()
    await cell.until_printed(1, ["no dispatcher that answers leads, so nothing is decided"])


@pytest.mark.processes
@pytest.mark.timeout(60)
async def test_metrics_of_a_dispatcher_count_letters(cell: Cell) -> None:
    cell.running["dispatcher"].start()
    await cell.bus.publish(cell.bus.subjects.intake_request("default", "naive"), NAIVE)
    await refused_by(cell, 1)
    found: dict[str, float] = {}

    async def is_counted() -> bool:
        nonlocal found
        processes = await cell.bus.processes()  # none if it answers too late to count
        assert len(processes) <= 1
        for process in processes:
            assert process.data is not None
            found = process.data.gauges
        return bool(found.get('berth_dispatcher_dead_letters{reason="undecodable"}'))

    await until_true(is_counted, deadline_s=15, what="the letter in the metrics of the dispatcher")
    assert {name for name in found if "dead_letter" in name} == {
        f'berth_dispatcher_dead_letter{what}{{reason="{code}"}}' for what in ("s", "_age_seconds") for code in CODES
    }
    assert 0 <= found['berth_dispatcher_dead_letter_age_seconds{reason="undecodable"}'] < 60


async def refused_by(cell: Cell, count: int) -> None:
    """As :func:`refused`, with the dispatcher alone."""
    while len((await read_letters(cell.bus)).letters) < count:
        assert cell.running["dispatcher"].is_running
        await pause(0.05)
