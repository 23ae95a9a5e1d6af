"""Expected starts over the service for programs: of jobs that wait, and of one that is not submitted."""

from typing import Any

import pytest

from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig, Grant
from berth.services.api.expected_starts import OpenQuestions
from berth.services.api.request_errors import RequestError
from tests.support.programs import Programs, job_file, programs

GRANTS = ApiConfig(
    access="grants",
    grants=[
        Grant(identity="alice", role="submit", namespaces=["team"]),
        Grant(identity="bob", role="read", namespaces=["team"]),
        Grant(identity="carol", role="submit", namespaces=["lab"]),
    ],
)


def a_file(name: str, namespace: str = "team", run_s: int = 600) -> dict[str, Any]:
    file = job_file(name, namespace=namespace, uid=f"u-{name}")
    file["spec"] |= {"runFor": f"{run_s}s", "replicas": 2}
    return file


async def crowded(told: Programs, identity: str = "") -> None:
    """A job that runs for ten minutes on both nodes, and two that wait."""
    for name in ("one", "two", "three"):
        assert (await told.ask("submit", {"job": a_file(name)}, identity=identity))["ok"]
        await told.turns(2)


async def test_jobs_that_wait_have_their_starts_and_places() -> None:
    async with programs() as told:
        await crowded(told)
        reply = await told.ask("expected-starts", {"namespace": "team"})
        found = {job["name"]: job for job in reply["jobs"]}
        assert sorted(found) == ["three", "two"]
        two, three = found["two"], found["three"]
        assert two["latest_ms"] == two["earliest_ms"] > reply["at_ms"]
        assert three["earliest_ms"] == two["earliest_ms"] + 600_000
        assert (two["position"], three["position"], three["queue_position"], three["chips_ahead"]) == (1, 2, 2, 16)
        assert (two["held_by"], three["held_by"]) == (["team/one"], ["team/two", "team/one"])
        assert three["sentences"][0].startswith("Expected start: ")
        first = await told.ask("expected-starts", {"limit": 1})
        assert ([job["name"] for job in first["jobs"]], first["next"]) == (["three"], "team/three")
        second = await told.ask("expected-starts", {"limit": 1, "after": first["next"]})
        assert ([job["name"] for job in second["jobs"]], second["next"]) == (["two"], "")


async def test_an_explanation_says_when_the_job_is_expected_to_start() -> None:
    async with programs() as told:
        await crowded(told)
        reply = await told.ask("explain", {"namespace": "team", "name": "two"})
        assert any(line.startswith("Expected start: ") for line in reply["sentences"])
        assert reply["explanation"]["expected_start"]["held_by"] == ["team/one"]


async def test_a_job_is_asked_for_and_nothing_is_stored() -> None:
    async with programs() as told:
        await crowded(told)
        before = (await told.bus.state(StreamName.INTAKE)).last_seq
        reply = await told.ask("ask", {"job": a_file("four"), "queue": "research"})
        found = reply["expected"]
        assert (found["name"], found["uid"], found["queue"], found["position"]) == ("four", "", "research", 3)
        three = (await told.ask("explain", {"namespace": "team", "name": "three"}))["explanation"]["expected_start"]
        assert found["earliest_ms"] == three["earliest_ms"] + 600_000
        assert (await told.bus.state(StreamName.INTAKE)).last_seq == before


async def test_a_wrong_question_gets_the_error_of_a_wrong_submission() -> None:
    async with programs() as told:
        wrong = a_file("four")
        wrong["spec"]["replicas"] = 0
        asked = await told.ask("ask", {"job": wrong})
        assert asked == await told.ask("submit", {"job": wrong})
        assert asked["error"].startswith("job.spec.replicas is 0, expected ")
        reply = await told.ask("ask", {"job": a_file("four"), "queue": "a b"})
        assert reply["error"] == "queue is 'a b', expected the name of a queue"


async def test_only_who_may_submit_there_may_ask_and_only_who_may_read_sees_starts() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        await crowded(told, "alice")
        question = {"job": a_file("four")}
        assert (await told.ask("ask", question, identity="alice"))["ok"]
        for identity in ("bob", "carol", ""):
            assert (await told.ask("ask", question, identity=identity))["code"] == "denied", identity
        for identity, names in (("alice", ["three", "two"]), ("bob", ["three", "two"]), ("carol", [])):
            reply = await told.ask("expected-starts", {}, identity=identity)
            assert [job["name"] for job in reply["jobs"]] == names, identity
        assert (await told.ask("expected-starts", {"namespace": "team"}, identity="carol"))["code"] == "denied"
        assert (await told.ask("expected-starts", {}))["code"] == "denied"


async def test_jobs_of_other_namespaces_have_no_names_in_an_answer() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        await crowded(told, "alice")
        reply = await told.ask("ask", {"job": a_file("four", "lab")}, identity="carol")
        assert reply["expected"]["held_by"] == ["a job of another namespace"]
        assert "team" not in str(reply)


async def test_who_would_end_is_told_only_to_those_who_may_read_all_namespaces() -> None:
    operator = Grant(identity="operator", role="submit", namespaces=["*"])
    config = ApiConfig(access="grants", grants=[*GRANTS.grants, operator])
    async with programs(is_started=False, preempt=2) as told:
        await told.start(config)
        await crowded(told, "alice")
        high = a_file("four")
        high["spec"] |= {"priority": 7}
        asked = {"job": high, "victims": True}
        reply = await told.ask("ask", asked, identity="alice")
        assert (reply["code"], reply["error"]) == (
            "denied",
            "identity is 'alice', expected one that may read in all namespaces",
        )
        victims = (await told.ask("ask", asked, identity="operator"))["expected"]["victims"]
        assert [job["job"] for job in victims["jobs"]] == ["team/one"]
        assert (await told.ask("ask", {"job": high}, identity="operator"))["expected"]["victims"] is None


def test_an_identity_has_few_questions_open_at_the_same_time() -> None:
    questions = OpenQuestions()
    with questions.of("a"), questions.of("a"), questions.of("a"), questions.of("a"):
        with questions.of("b"):
            pass
        with pytest.raises(RequestError, match="'a' with 4 questions about starts at the same time") as raised:
            questions.of("a").__enter__()
        assert raised.value.code == "too-many"
    with questions.of("a"):
        pass
