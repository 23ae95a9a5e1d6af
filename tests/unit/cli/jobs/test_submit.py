"""``berth submit`` on a cell in memory: what is sent, what is said of each verdict, and the exit codes."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, JobState
from berth.schemas.intake import JobRequest
from berth.schemas.placement import Run, placement_of
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName, Subjects
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.own_command import OwnCommand

PLACE = placement_of(["a2-7"], [(0, 1)], [Run(1, 2)], resource="r")
TOO_LARGE = "the job asks for 64 chips, and there are 8 in all"
LATE = {"phase": "waiting", "sentence": "no node has 8 free chips"}
NEVER = {"phase": "waiting", "sentence": TOO_LARGE, "refusal": Refusal("larger-than-cluster", "tasks", "8", "less")}


class Answering(FakeBus):
    """A client whose requests are answered at once, as a dispatcher would."""

    status: ClassVar[dict[str, Any]] = {}
    """Fields of the status of the job; empty: it is rejected."""

    def after_publish(self, sequence: int, message_id: str) -> None:
        del message_id  # a request has none
        stored = self.server.stream(self.subjects.stream(StreamName.INTAKE)).messages[sequence]
        request = decode(stored.data, JobRequest)
        key = (request.namespace, request.name)
        refusal = None if self.status else Refusal("job-shape", "tasks[0].chips", "3", "1, 2, 4 or 8")
        state: JobState = "accepted" if self.status else "rejected"
        verdict = JobSeen(*key, request.uid, state, sequence, request=request, refusal=refusal)
        self.server.store(self.subjects.fact_job(*key), encode(verdict), None, None)
        if self.status:
            status = JobStatus(*key, request.uid, since_ms=1, at_ms=1, **self.status)
            self.server.store(self.subjects.status(*key), encode(status), None, None)


Berth = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server() -> FakeServer:
    async def made() -> FakeServer:
        found = FakeServer()
        await FakeBus(found, "cell").ensure_streams()
        return found

    return asyncio.run(made())


@pytest.fixture
def submit(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Berth:
    manifest = {
        "apiVersion": "berth/v1",
        "kind": "Job",
        "metadata": {"name": "sent", "namespace": "ml"},
        "spec": {"product": "module910bx8", "chips": 8},
    }
    file = tmp_path / "job.json"
    file.write_text(json.dumps(manifest), "utf-8")

    def run(*words: str, **status: object) -> tuple[int, str, str]:
        client = type("Answers", (Answering,), {"status": status})
        return OwnCommand(monkeypatch, capsys, server, client)("submit", str(file), *words)

    return run


def test_an_accepted_request_is_sent_and_its_job_is_shown(submit: Berth, server: FakeServer) -> None:
    code, out, err = submit("--json", **LATE)
    assert code == 0, err
    (job,) = json.loads(out)["jobs"]
    (stored,) = server.stream(Subjects("cell").stream(StreamName.INTAKE)).counting()
    assert (job["verdict"], job["uid"]) == ("accepted", decode(stored.data, JobRequest).uid)
    assert (job["namespace"], job["name"], job["status"]["phase"]) == ("ml", "sent", "waiting")
    assert submit(**LATE) == (0, "ml/sent is waiting: no node has 8 free chips\n", "")


@pytest.mark.parametrize(("phase", "code"), [("rejected", 1), ("failed", 1), ("running", 0), ("succeeded", 0)])
def test_without_waiting_the_code_says_whether_the_job_has_ended_badly_already(
    phase: str, code: int, submit: Berth
) -> None:
    assert submit(phase=phase, sentence="so it is")[0] == code


@pytest.mark.parametrize("words", [(), ("--wait",)])
def test_a_rejected_request_is_an_error_that_names_its_field(words: tuple[str, ...], submit: Berth) -> None:
    code, out, err = submit(*words)
    assert (code, out) == (1, "")
    assert err == "error: ml/sent: spec.chips: is 3, expected 1, 2, 4 or 8\n"


@pytest.mark.parametrize(
    ("words", "status", "code", "out", "err"),
    [
        ("--wait", {"phase": "running", "placement": PLACE}, 0, "ml/sent is running on a2-7\n", ""),
        (
            "--wait --timeout 0.1",
            LATE,
            124,
            "",
            "error: ml/sent is not placed in time and stays queued: no node has 8 free chips\n",
        ),
        ("--wait", NEVER, 1, "", f"error: ml/sent is waiting: {TOO_LARGE}\n"),
        ("--wait", {"phase": "failed", "sentence": "a pod failed"}, 1, "", "error: ml/sent has failed: a pod failed\n"),
    ],
    ids=["placed", "late", "never", "ended"],
)
def test_waiting_ends_with_what_became_of_the_job(
    words: str, status: dict[str, Any], code: int, out: str, err: str, submit: Berth
) -> None:
    assert submit(*words.split(), **status) == (code, out, err)


def test_an_option_names_the_queue_of_all_jobs(submit: Berth, server: FakeServer) -> None:
    code, _, err = submit("--queue", "research", phase="placed", placement=PLACE)
    assert code == 0, err
    (stored,) = server.stream(Subjects("cell").stream(StreamName.INTAKE)).messages.values()
    assert decode(stored.data, JobRequest).queue == "research"


def test_a_queue_whose_name_is_none_is_wrong_use(submit: Berth) -> None:
    assert submit("--queue", "No_Queue")[::2] == (2, "error: --queue is 'No_Queue', expected the name of a queue\n")
