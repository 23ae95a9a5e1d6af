"""``berth wait`` and ``berth submit --wait`` as processes on a real server: exit codes, progress, Ctrl-C."""

import json
from pathlib import Path
from typing import Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.placement import Run, placement_of
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.command import berth
from tests.support.live_command import live
from tests.support.waiting import until_true

NOW_MS: Final = 1_700_000_000_000
WHY: Final = "no node has 8 free chips"
PLACE: Final = placement_of(["a2-7"], [(0, 1)], [Run(1, 2)], resource="r")
MANIFEST: Final = json.dumps(
    {
        "apiVersion": "berth/v1",
        "kind": "Job",
        "metadata": {"name": "sent", "namespace": "ml"},
        "spec": {"product": "module910bx8", "chips": 8},
    }
)


VERBS = {"running": "is", "cancelled": "was", "rejected": "was"}


def a_status(name: str, phase: str = "waiting", **fields: object) -> JobStatus:
    fields = {"uid": f"uid-{name}", "sentence": WHY if phase == "waiting" else "", "submitted_ms": NOW_MS, **fields}
    return JobStatus("ml", name, phase=phase, since_ms=NOW_MS, at_ms=NOW_MS, **fields)  # type: ignore[arg-type]  # its fields


async def publish(bus: NatsBus, *statuses: JobStatus) -> None:
    for status in statuses:
        await bus.publish(bus.subjects.status(status.namespace, status.name), encode(status))


async def accept(bus: NatsBus) -> JobRequest:
    """Accept the request that was sent, as a dispatcher does; the job waits."""

    async def sent() -> list[Stored]:
        return await bus.read(StreamName.INTAKE)

    await until_true(sent, deadline_s=10, what="the request is sent")
    (stored,) = await sent()
    request = decode(stored.data, JobRequest)
    verdict = JobSeen("ml", "sent", request.uid, "accepted", stored.sequence, stored.sequence, request=request)
    await bus.publish(bus.subjects.fact_job("ml", "sent"), encode(verdict))
    await publish(bus, a_status("sent", uid=request.uid))
    return request


@pytest.mark.parametrize(
    ("goal", "phase", "code"),
    [
        ("placed", "running", 0),
        ("placed", "succeeded", 0),
        ("placed", "failed", 1),
        ("placed", "cancelled", 1),
        ("finished", "succeeded", 0),
        ("finished", "failed", 1),
        ("finished", "rejected", 1),
    ],
)
async def test_the_exit_code_tells_how_a_wait_ends(
    goal: str, phase: str, code: int, real_bus: NatsBus, nats_server: str, cell: str
) -> None:
    await publish(real_bus, a_status("x"))
    async with live("wait", "x", "-n", "ml", "--for", goal, url=nats_server, cell=cell, on_terminal=True) as waiting:
        await waiting.shows(f"ml/x is waiting: {WHY} (")
        await publish(real_bus, a_status("x", phase, placement=PLACE if phase == "running" else None))
        assert await waiting.ends() == code
        await waiting.shows(f"ml/x {VERBS.get(phase, 'has')} {phase}")


async def test_several_jobs_are_awaited_together(real_bus: NatsBus, nats_server: str, cell: str) -> None:
    await publish(real_bus, a_status("a", "succeeded"), a_status("b", "running"), a_status("c"))
    words = ("wait", "ml/a", "ml/b", "ml/c", "--for", "finished", "--json")
    async with live(*words, url=nats_server, cell=cell) as waiting:
        await publish(real_bus, a_status("c", "failed", sentence="a pod failed"), a_status("b", "succeeded"))
        (line,) = await waiting.lines(1)
        assert await waiting.ends() == 1
    assert [(row["name"], row["result"], row["status"]["phase"]) for row in json.loads(line)] == [
        ("a", "reached", "succeeded"),
        ("b", "reached", "succeeded"),
        ("c", "ended", "failed"),
    ]


async def test_a_job_larger_than_the_cluster_is_not_awaited(real_bus: NatsBus, nats_server: str, cell: str) -> None:
    await publish(real_bus, a_status("x", refusal=Refusal("larger-than-cluster")))
    code, out, err = await berth("wait", "ml/x", "--for", "placed", url=nats_server, cell=cell)
    assert (code, out, err) == (1, "", f"error: ml/x is waiting: {WHY}\n")


async def test_a_job_whose_name_another_has_by_now_has_ended(real_bus: NatsBus, nats_server: str, cell: str) -> None:
    await publish(real_bus, a_status("x"))
    async with live("wait", "ml/x", "--for", "placed", url=nats_server, cell=cell, on_terminal=True) as waiting:
        await waiting.shows("ml/x is waiting")
        await publish(real_bus, a_status("x", "running", uid="other"))
        assert await waiting.ends() == 1
        await waiting.shows("ml/x has ended, and another job has its name; see: berth explain ml/x --uid uid-x")


@pytest.mark.parametrize(("limit", "told"), [("0", "0 s"), ("0.2", "0.2 s"), ("200ms", "200ms")])
async def test_a_wait_that_takes_too_long_ends_with_its_own_code(
    limit: str, told: str, real_bus: NatsBus, nats_server: str, cell: str
) -> None:
    await publish(real_bus, a_status("x"), a_status("y", "succeeded"))
    words = ("wait", "ml/x", "ml/y", "--for", "placed", "--timeout", limit)
    code, out, err = await berth(*words, url=nats_server, cell=cell)
    assert (code, out) == (124, "ml/y has succeeded\n"), err
    assert err == f"error: ml/x was not placed within {told}; it is waiting: {WHY}\n", "no progress in a pipe"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["ml/x"], 2, 'Command "wait" parameter --for requires an argument.'),
        (["ml/x", "--for", "running"], 2, 'Invalid value "running" for --for. Choose from: "placed", "finished".'),
        (["--for", "placed"], 2, "no job is named, expected one or several"),
        (
            ["ml/x", "--for", "placed", "--timeout", "soon"],
            2,
            "--timeout is 'soon', expected seconds, days such as 7d, or a duration",
        ),
        (["ml/x", "--for", "placed", "--timeout", "-3"], 2, "--timeout"),
        (["ml/z", "--for", "placed"], 1, "no job is named ml/z; 1 job is known, see: berth jobs --all"),
    ],
)
async def test_wrong_use_is_told_from_failure(
    words: list[str], code: int, complaint: str, real_bus: NatsBus, nats_server: str, cell: str
) -> None:
    await publish(real_bus, a_status("x"))
    found, out, err = await berth("wait", *words, url=nats_server, cell=cell)
    assert (found, out) == (code, ""), err
    assert complaint in err


async def test_after_ctrl_c_the_jobs_stay_and_a_line_says_so(real_bus: NatsBus, nats_server: str, cell: str) -> None:
    await publish(real_bus, a_status("a"), a_status("b", "running"), a_status("c", "succeeded"))
    words = ("wait", "ml/a", "ml/b", "ml/c", "--for", "finished")
    async with live(*words, url=nats_server, cell=cell, on_terminal=True) as waiting:
        await waiting.shows("1 of 3 jobs are done")
        assert await waiting.interrupted() == 130
        await waiting.shows("ml/a stays queued; cancel it with: berth cancel ml/a")
        await waiting.shows("ml/b goes on; cancel it with: berth cancel ml/b")
        assert "Traceback" not in waiting.out


async def test_submit_waits_for_the_place(real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(MANIFEST)
    words = ("submit", str(tmp_path / "job.json"), "--wait")
    async with live(*words, url=nats_server, cell=cell, on_terminal=True) as submitting:
        await submitting.shows("ml/sent was sent; no verdict yet")
        request = await accept(real_bus)
        await submitting.shows(f"ml/sent is waiting: {WHY}")
        await publish(real_bus, a_status("sent", "placed", uid=request.uid, placement=PLACE))
        assert await submitting.ends() == 0
        await submitting.shows("ml/sent is placed on a2-7")


async def test_submit_has_the_code_of_a_timeout(real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(MANIFEST)
    words = ("submit", str(tmp_path / "job.json"), "--wait", "--timeout", "10s")  # enough to hear of the verdict before
    async with live(*words, url=nats_server, cell=cell, on_terminal=True) as submitting:
        await accept(real_bus)
        assert await submitting.ends() == 124
        await submitting.shows(f"ml/sent is not placed in time and stays queued: {WHY}")


@pytest.mark.parametrize("verdict", ["", "accepted"])
async def test_ctrl_c_leaves_what_was_submitted(
    verdict: str, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text(MANIFEST)
    words = ("submit", str(tmp_path / "job.json"), "--wait")
    async with live(*words, url=nats_server, cell=cell, on_terminal=True) as submitting:
        if verdict:
            await accept(real_bus)
        await submitting.shows(f"ml/sent is waiting: {WHY}" if verdict else "ml/sent was sent; no verdict yet")
        assert await submitting.interrupted() == 130
        await submitting.shows(
            "ml/sent stays queued; cancel it with: berth cancel ml/sent"
            if verdict
            else "ml/sent was sent and stays queued, without a verdict yet"
        )
    assert len(await real_bus.read(StreamName.INTAKE)) == 1
