"""``berth jobs`` as a process, on a real server: tables, names, JSON, and lists that go on."""

import asyncio
import json
import sys
from typing import Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.placement import Run, placement_of
from berth.schemas.status import JobStatus
from tests.support.command import berth
from tests.support.live_command import live

NOW_MS: Final = 1_700_000_000_000


def a_status(name: str, phase: str = "waiting", *, seq: int = 0, **fields: object) -> JobStatus:
    fields = {"submitted_ms": NOW_MS, "sentence": "no node has 8 free chips", **fields}
    return JobStatus("ml", name, f"uid-{name}", phase, NOW_MS, NOW_MS, accepted_seq=seq, **fields)  # type: ignore[arg-type]  # its fields


async def publish(bus: NatsBus, *statuses: JobStatus) -> None:
    for status in statuses:
        await bus.publish(bus.subjects.status(status.namespace, status.name), encode(status))


@pytest.fixture(name="bus")
async def filled_bus(real_bus: NatsBus) -> NatsBus:
    """A cell with a job of each kind."""
    placed = placement_of(["a2-0", "a2-1"], [(0, 1), (2, 3)], [Run(2, 2)], resource="r")
    await publish(
        real_bus,
        a_status("late", seq=8),
        a_status("early", seq=3),
        a_status("urgent", seq=9, priority=5),
        a_status("runs", "running", seq=1, placement=placed, sentence="", pods=2, chips=4),
        a_status("done", "succeeded", seq=2, sentence=""),
    )
    return real_bus


@pytest.mark.usefixtures("bus")
async def test_jobs_are_listed_in_the_order_of_the_queue(nats_server: str, cell: str) -> None:
    code, out, err = await berth("jobs", url=nats_server, cell=cell)
    assert code == 0, err
    *rows, totals = out.splitlines()[1:]
    assert [(words[:2], words[5]) for words in map(str.split, rows)] == [
        (["ml/urgent", "waiting"], "1"),
        (["ml/early", "waiting"], "2"),
        (["ml/late", "waiting"], "3"),
        (["ml/runs", "running"], "-"),
    ]
    assert totals == "3 wait for 0 chips, 1 runs on 4 chips"
    assert all(line == line.rstrip() for line in out.splitlines())
    assert err == "1 job is over; list them with --all\n"


@pytest.mark.usefixtures("bus")
async def test_names_and_json_are_for_programs(nats_server: str, cell: str) -> None:
    code, out, err = await berth("jobs", "-o", "name", "-f", "phase!=running", url=nats_server, cell=cell)
    assert (code, out.split()) == (0, ["ml/urgent", "ml/early", "ml/late"]), err
    code, out, err = await berth("jobs", "--all", "--sort", "-age,name", "-o", "json", url=nats_server, cell=cell)
    assert code == 0, err
    found = json.loads(out)
    assert [(row["name"], row["position"], row["submitted_ms"]) for row in found] == [
        ("done", 0, NOW_MS),
        ("early", 2, NOW_MS),
        ("late", 3, NOW_MS),
        ("runs", 0, NOW_MS),
        ("urgent", 1, NOW_MS),
    ]
    words = ("jobs", "-f", "phase=waiting,running", "-f", "priority=0", "-f", "name!=late", "-o", "name")
    code, out, err = await berth(*words, url=nats_server, cell=cell)
    assert (code, out.split()) == (0, ["ml/early", "ml/runs"]), err
    code, out, err = await berth("jobs", "-n", "eval", url=nats_server, cell=cell)
    assert (code, out, err) == (0, "", "no job matches; 5 jobs are known\n")
    code, out, err = await berth("jobs", "-o", "wide", "-f", "node=a2-1", url=nats_server, cell=cell)
    assert out.splitlines()[1].split()[-4:] == ["-", "-", "a2-0:0,1,", "a2-1:2,3"], err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--sort", "size"], "--sort is 'size', expected one or several of queue, age, "),
        (["-f", "phase=running2"], "--filter phase is 'running2', expected one of waiting, "),
        (["-o", "yaml"], 'Invalid value "yaml" for -o. Choose from: "text", "wide", "name", "json".'),
        (["-o", "wide", "--json"], "--output is 'wide', expected 'json' or nothing beside --json"),
        (["-o", "name", "--watch"], "--output is 'name', expected text, wide or json beside --watch"),
    ],
)
async def test_a_wrong_value_is_named_before_a_server_is_asked(words: list[str], complaint: str) -> None:
    code, out, err = await berth("jobs", *words, url="nats://127.0.0.1:9")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert complaint in err


async def test_a_list_that_goes_on_prints_a_line_for_each_change(bus: NatsBus, nats_server: str, cell: str) -> None:
    placed = placement_of(["a2-7"], [(0, 1)], [Run(1, 2)], resource="r")
    async with live("jobs", "--watch", url=nats_server, cell=cell) as listing:
        assert [line.split()[0] for line in await listing.lines(5)] == [
            "JOB", "ml/urgent", "ml/early", "ml/late", "ml/runs",
        ]  # fmt: skip
        await publish(bus, a_status("early", seq=3), a_status("urgent", "placed", seq=9, placement=placed))
        assert (await listing.lines(1))[0].endswith("UTC  ml/urgent is placed on a2-7")
        await publish(bus, a_status("runs", "failed", sentence="a pod failed"), a_status("done", "failed", seq=2))
        await publish(bus, a_status("new", sentence="nothing fits"))
        first, second = await listing.lines(2)
        assert first.endswith("UTC  ml/runs has failed: a pod failed"), "it leaves the list"
        assert second.endswith("UTC  ml/new is waiting: nothing fits"), "done was over, and is not in the list"
        assert await listing.interrupted() == 130


async def test_a_list_of_json_goes_on_with_a_job_per_line(bus: NatsBus, nats_server: str, cell: str) -> None:
    words = ("jobs", "-w", "-o", "json", "-f", "phase=waiting")
    async with live(*words, url=nats_server, cell=cell) as listing:
        rows = [json.loads(line) for line in await listing.lines(3)]
        assert [(row["name"], row["position"]) for row in rows] == [("urgent", 1), ("early", 2), ("late", 3)]
        await publish(bus, a_status("urgent", "running", seq=9), a_status("late", seq=8, priority=7, sentence="none"))
        rows = [json.loads(line) for line in await listing.lines(2)]
        assert [(row["name"], row["phase"], row["position"]) for row in rows] == [
            ("urgent", "running", 0),
            ("late", "waiting", 1),
        ]
        assert await listing.interrupted() == 130


async def test_a_terminal_is_drawn_again_and_restored(bus: NatsBus, nats_server: str, cell: str) -> None:
    await publish(bus, *(a_status(f"s{at}", seq=100 + at, sentence="no leaf has room") for at in range(9)))
    async with live("jobs", "--watch", url=nats_server, cell=cell, on_terminal=True) as listing:
        await listing.shows("ml/s0 +8")
        assert "4-12" in listing.out
        await publish(bus, a_status("urgent", "running", seq=9, sentence="", priority=5))
        await listing.shows("3-11")
        assert await listing.interrupted() == 130
        await listing.shows("\x1b[?1049l")


async def test_a_reader_that_closes_the_pipe_early_is_no_error(bus: NatsBus, nats_server: str, cell: str) -> None:
    await publish(bus, *(a_status(f"s{at}", sentence="x" * 2_000) for at in range(200)))
    for form in ("text", "name", "json"):
        process = await asyncio.create_subprocess_shell(
            f"{sys.executable} -m berth.cli jobs -o {form} --url {nats_server} --cell {cell} | head -c 10; exit ${{PIPESTATUS[0]}}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, executable="/bin/bash",
        )  # fmt: skip
        out, err = await process.communicate()
        assert (len(out), process.returncode) == (10, 0), (form, err.decode())
        assert b"rror" not in err
