"""Every operation of the service for programs: its replies, and what it says of wrong requests.

Longer than 400 lines because every operation is asked here, of one service.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.errors import TransientError
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobCancel, JobRequest, Preemption
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.fake_bus import FakeBus, FakeFollower
from tests.support.programs import Programs, events_in, job_file, programs


async def stored_requests(told: Programs) -> list[JobRequest]:
    return [decode(one.data, JobRequest) for one in await told.bus.read(StreamName.INTAKE)]


async def test_a_job_is_submitted_placed_and_read() -> None:
    async with programs() as told:
        assert await told.submit() == {
            "ok": True, "namespace": "team", "name": "train", "uid": "u-1", "sequence": 1, "duplicate": False,
        }  # fmt: skip
        assert (await told.ask("status", {"namespace": "team", "name": "train"}))["job"]["phase"] == "submitted"
        await told.turns(2)
        reply = await told.ask("status", {"namespace": "team", "name": "train", "uid": "u-1"})
        job = reply["job"]
        assert (reply["ok"], job["phase"], job["pods"], job["chips"], job["sequence"]) == (True, "placed", 1, 8, 1)
        assert job["ranks"] == [{"rank": 0, "node": "n0", "chips": list(range(8))}]
        (request,) = await stored_requests(told)
        assert (request.submitted_by, request.created_at_ms) == ("", 0)


async def test_what_a_submitted_job_says_of_preemption_may_change_while_it_runs() -> None:
    async with programs() as told:
        job = job_file()
        for annotations in ({"berth/preempt-notice-s": "60"}, {"volcano.sh/preemptable": "maybe"}):
            job["metadata"] |= {"annotations": annotations}
            assert (await told.ask("submit", {"job": job}))["ok"]
            await told.turns(2)
        why = "annotation volcano.sh/preemptable is 'maybe': expected true or false; it counts as false"
        said = [request.preemption for request in await stored_requests(told)]
        assert said == [Preemption(notice_s=60), Preemption(preemptable=False, ignored=[why])]
        reply = await told.ask("status", {"namespace": "team", "name": "train"})
        assert (reply["job"]["phase"], reply["job"]["warning"]) == ("placed", why)


async def test_a_request_without_a_uid_gets_one_from_its_sequence() -> None:
    async with programs() as told:
        reply = await told.submit(uid="")
        assert (reply["uid"], reply["sequence"]) == ("intake-1", 1)
        await told.turns(2)
        assert (await told.ask("status", {"namespace": "team", "name": "train"}))["job"]["uid"] == "intake-1"


async def test_a_job_whose_status_is_not_written_yet_is_known() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        statuses = told.cell.server.stream(told.bus.subjects.stream(StreamName.STATUS))
        statuses.messages.clear()
        statuses.newest.clear()
        for uid in ("", "u-1"):
            name = {"namespace": "team", "name": "train", "uid": uid}
            assert (await told.ask("status", name))["job"]["phase"] == "submitted"
            assert (await told.ask("cancel", name))["uid"] == "u-1"
        other = {"namespace": "team", "name": "train", "uid": "u-2"}
        assert (await told.ask("status", other))["code"] == "not-found"


async def test_the_same_uid_is_submitted_once() -> None:
    async with programs() as told:
        first = await told.submit()
        await told.turns(2)
        assert await told.submit() == {**first, "duplicate": True}
        assert len(await stored_requests(told)) == 1


async def test_the_same_uid_is_placed_once_also_if_the_verdict_is_not_known_yet() -> None:
    async with programs() as told:
        first = await told.submit()
        second = await told.submit()
        assert (first["sequence"], second["sequence"], second["duplicate"]) == (1, 2, False)
        await told.turns(3)
        assert [one for one in await told.ids() if "accepted" in one or "placed" in one] == [
            "u-1/0/0/accepted",
            "u-1/1/0/placed",
        ]
        assert (await told.ask("status", {"namespace": "team", "name": "train"}))["job"]["refused"] is None


async def test_another_request_of_a_uid_that_is_placed_is_refused() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        reply = await told.submit(product="module910bx8", chips=4)
        assert (reply["ok"], reply["code"]) == (False, "invalid-request")
        assert (
            reply["error"]
            == "job.metadata.uid is u-1, expected the request as it was placed, but for queue, priority and"
            " preemption, or another uid once it has ended"
        )


async def test_a_uid_of_another_job_is_in_use() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        reply = await told.submit("other")
        assert reply == {
            "ok": False,
            "error": "job.metadata.uid is 'u-1', expected another uid: the job team/train has or had this one",
            "code": "uid-in-use",
        }


async def test_a_uid_of_a_job_in_another_namespace_is_in_use_and_that_job_is_not_named() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        reply = await told.submit("other", namespace="lab")
        assert (reply["ok"], reply["code"]) == (False, "uid-in-use")
        assert reply["error"].endswith("expected another uid: a job of another namespace has or had this one")
        # the dispatcher says the same of a request that came another way
        await told.cell.submit(a_job("fast", uid="u-1", chips=8, namespace="lab"))
        await told.turns(2)
        (rejected,) = await events_in(told.bus, "lab", "fast")
        assert (rejected.phase, "train" in rejected.sentence) == ("rejected", False)


@pytest.mark.parametrize("uid", ["intake-17", "u" * 1_001])
async def test_a_uid_that_is_reserved_or_too_long_is_refused(uid: str) -> None:
    async with programs() as told:
        reply = await told.submit(uid=uid)
        assert (reply["ok"], reply["code"]) == (False, "invalid-request")
        assert reply["error"].startswith(f"job.metadata.uid is '{uid[:9]}")
        assert await stored_requests(told) == []


class LaggingBus(FakeBus):
    """A bus over which no more facts come."""

    def follow(self, stream: StreamName, *, on_message: Callable[[Stored], None], **more: Any) -> FakeFollower:  # noqa: ANN401  # as they are
        def take(stored: Stored) -> None:
            if stream is not StreamName.FACTS or not self.is_behind:
                on_message(stored)

        return super().follow(stream, on_message=take, **more)

    is_behind = False


async def test_a_retry_at_an_instance_that_does_not_know_the_job_yet_is_taken() -> None:
    async with programs(is_started=False) as told:
        behind = LaggingBus(told.cell.server, told.cell.cell)
        await told.start()
        await told.start(bus=behind)
        behind.is_behind = True
        first = await told.submit()
        await told.turns(2)
        assert await told.ids() == ["u-1/0/0/accepted", "u-1/1/0/placed"]
        again = await told.submit()  # the instances answer in turn
        assert again == {**first, "sequence": 2}
        await told.turns(3)
        assert [one for one in await told.ids() if one.endswith("placed")] == ["u-1/1/0/placed"]
        await told.kill()


async def end(told: Programs, name: str) -> None:
    """Let a job be cancelled while it waits, and give up its name."""
    await told.ask("cancel", {"namespace": "team", "name": name})
    await told.turns(2)


async def test_a_uid_that_is_over_is_a_duplicate_first_and_in_use_later() -> None:
    async with programs(nodes=0) as told:
        first = await told.submit()
        await told.turns(2)
        await end(told, "train")
        assert await told.submit() == {**first, "duplicate": True}
        changed = await told.submit(product="module910bx8", chips=4)
        assert (changed["ok"], changed["code"]) == (False, "uid-in-use")
        told.cell.clock.advance(601)
        await told.turns(3)
        assert ("team", "train") not in told.cell.dispatcher.state.jobs, "the name is free"
        assert (await told.submit())["code"] == "uid-in-use"
        assert (await told.submit(uid="u-2"))["ok"]


async def test_a_name_that_a_job_has_is_in_use() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        reply = await told.submit(uid="u-2")
        assert (reply["ok"], reply["code"]) == (False, "name-in-use")
        assert reply["error"].startswith(
            "job.metadata.name is team/train, expected another name, or the end of the job"
        )


async def test_a_request_that_was_refused_for_the_name_is_in_the_status_of_the_job_that_has_it() -> None:
    async with programs() as told:
        await told.cell.submit(a_job("train", uid="first", chips=8))
        await told.turns(2)
        await told.cell.submit(a_job("train", uid="second", chips=4))
        await told.turns(2)
        job = (await told.ask("status", {"namespace": "default", "name": "train"}))["job"]
        refused = job["refused"]
        assert job["uid"] == "first"
        assert (refused["uid"], refused["code"], refused["value"]) == ("second", "name-in-use", "default/train")
        assert refused["field"]
        assert refused["expected"]
        assert refused["at_ms"] >= job["since_ms"]


async def test_a_job_is_cancelled_also_before_its_verdict() -> None:
    async with programs(nodes=0) as told:
        await told.submit()
        reply = await told.ask("cancel", {"namespace": "team", "name": "train", "reason": "a mistake"})
        assert reply == {"ok": True, "namespace": "team", "name": "train", "uid": "u-1", "sequence": 2}
        await told.turns(2)
        assert (await told.ids())[-1] == "u-1/1/0/cancelled"
        again = await told.ask("cancel", {"namespace": "team", "name": "train"})
        assert again["error"] == "name is team/train, expected a job that is not over; it is cancelled"
        assert again["code"] == "over"


async def test_a_cancellation_of_another_uid_is_refused() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        reply = await told.ask("cancel", {"namespace": "team", "name": "train", "uid": "u-9"})
        assert (reply["ok"], reply["code"]) == (False, "not-found")
        assert reply["error"] == "uid is 'u-9', expected a job of namespace team; the job with this name has uid u-1"


@pytest.mark.parametrize("verb", ["cancel", "status", "explain", "update"])
async def test_a_job_that_there_is_not(verb: str) -> None:
    async with programs() as told:
        change = {"change": {"held": True}} if verb == "update" else {}
        reply = await told.ask(verb, {"namespace": "team", "name": "nobody", **change})
        assert reply == {
            "ok": False,
            "error": "name is team/nobody, expected a job of namespace team",
            "code": "not-found",
        }


async def test_a_placed_and_a_waiting_job_are_explained() -> None:
    async with programs(nodes=1) as told:
        await told.submit("one")
        await told.submit("two", uid="u-2")
        await told.turns(3)
        placed = await told.ask("explain", {"namespace": "team", "name": "one"})
        assert (placed["ok"], placed["phase"], placed["explanation"]["outcome"]) == (True, "placed", "placed")
        assert any("n0" in line for line in placed["sentences"])
        waiting = await told.ask("explain", {"namespace": "team", "name": "two"})
        assert (waiting["phase"], waiting["explanation"]["outcome"]) == ("waiting", "waiting")
        assert waiting["sentences"]
        assert waiting["explanation"]["fits"] == []
        asked = await told.ask("explain", {"namespace": "team", "name": "two", "nodes": True})
        assert [(one["reason"], one["nodes"]) for one in asked["explanation"]["fits"]] == [("shortage", ["n0"])]


async def test_a_job_without_a_verdict_is_explained() -> None:
    async with programs() as told:
        await told.submit()
        reply = await told.ask("explain", {"namespace": "team", "name": "train"})
        assert (reply["phase"], reply["explanation"], reply["sentences"]) == (
            "submitted",
            None,
            ["Nothing was decided yet."],
        )


async def test_nodes_in_pages() -> None:
    async with programs(nodes=3) as told:
        await told.submit()
        await told.turns(2)
        first = await told.ask("nodes", {"limit": 2})
        assert ([node["name"] for node in first["nodes"]], first["next"]) == (["n0", "n1"], "n1")
        assert (first["nodes"][0]["used"], first["nodes"][1]["free"]) == (list(range(8)), list(range(8)))
        second = await told.ask("nodes", {"limit": 2, "after": first["next"]})
        assert ([node["name"] for node in second["nodes"]], second["next"]) == (["n2"], "")
        some = await told.ask("nodes", {"names": ["n1", "n9"]})
        assert [node["name"] for node in some["nodes"]] == ["n1"]


async def test_pages_of_nodes_are_as_long_as_the_server_takes() -> None:
    async with programs(nodes=20) as told:
        whole = await told.ask("nodes", {})
        told.cell.server.payload_limit_bytes = 3_000
        found: list[dict[str, Any]] = []
        reply = await told.ask("nodes", {})
        while True:
            found += reply["nodes"]
            if not reply["next"]:
                break
            reply = await told.ask("nodes", {"after": reply["next"]})
        assert found == whole["nodes"]


async def test_a_reply_that_the_server_does_not_take_is_an_error_that_says_what_to_do() -> None:
    async with programs(nodes=2) as told:
        await told.submit(product="module910bx8", chips=8, replicas=2)
        await told.turns(2)
        named = {"namespace": "team", "name": "train"}
        told.cell.server.payload_limit_bytes = 250
        for verb, request, advice in (
            ("nodes", {}, "ask for fewer nodes with limit or names, or raise max_payload of NATS"),
            ("status", named, "raise max_payload of NATS, or read the job with berth jobs"),
            ("explain", named, "or ask with berth explain, which reads the history itself"),
        ):
            reply = await told.ask(verb, request)
            assert (reply["ok"], reply["code"]) == (False, "reply-too-large")
            assert re.match(r"reply is \d+ bytes, expected at most 250: ", reply["error"])
            assert reply["error"].endswith(advice)


WRONG: list[tuple[str, object, str]] = [
    ("status", b"", "request is '', expected a JSON object"),
    ("status", b"\xff{", "expected a JSON object"),
    ("status", b'{"name":', "expected a JSON object"),
    ("status", [], "request is [], expected `object`"),
    ("status", {}, "name is missing, expected a value"),
    ("status", {"name": 3}, "name is 3, expected `str`"),
    ("status", {"name": "A b"}, "name is 'A b', expected"),
    (
        "status",
        {"name": "a", "name_": "b"},
        "name_ is an unknown field, expected 'name'? (one of name, namespace, uid)",
    ),
    ("cancel", {"name": "a", "reason": "x" * 1_001}, "reason is 'xxx"),
    ("nodes", {"limit": 0}, "limit is 0, expected `int` >= 1"),
    ("nodes", {"names": ["a", 7]}, "names[1] is 7, expected `str`"),
    ("nodes", b'{"names":[7],"names":[]}', "names[0] is None, expected `str`"),
    ("nodes", b'{"names":[7],"names":{"0":1}}', "names[0] is 1, expected `str`"),
    ("submit", {}, "job is missing, expected a value"),
    ("submit", {"job": 7}, "job is 7, expected a mapping"),
    ("submit", {"job": {"kind": "Job"}}, "job.apiVersion is missing, expected the version of the object's kind"),
    ("submit", {"job": {"kind": "List", "apiVersion": "v1", "items": []}}, "job.kind is 'List', expected a single job"),
    ("submit", {"job": job_file(product="module910bx8", chips="many")}, "job.spec.chips is 'many', expected"),
    (
        "submit",
        {"job": job_file(product="module910bx8", chip=1)},
        "job.spec.chip is an unknown field, expected 'chips'?",
    ),
    ("submit", {"job": job_file(product="no-such")}, "job.spec.product is 'no-such', expected"),
    ("submit", {"job": job_file(product="module910x8", chips=3)}, "chips is 3, expected"),
    ("submit", b'{"job":' + b"[" * 3_000 + b"]" * 3_000 + b"}", "expected"),
]


@pytest.mark.parametrize(("verb", "request_", "error"), WRONG, ids=lambda value: str(value)[:40])
async def test_a_wrong_request_is_refused_with_field_value_and_what_is_expected(
    verb: str, request_: object, error: str
) -> None:
    async with programs() as told:
        reply = await told.ask(verb, request_)
        assert reply["ok"] is False
        assert error in reply["error"]
        assert reply["code"]
        assert await stored_requests(told) == []
        assert (await told.ask("nodes", {}))["ok"], "the service goes on"


async def test_a_request_that_is_too_long_is_refused() -> None:
    async with programs() as told:
        reply = await told.ask("status", b" " * 4_000_001)
        assert reply["code"] == "too-large"


async def test_a_server_that_is_away_is_said_and_the_service_goes_on() -> None:
    async with programs() as told:
        told.cell.server.lose_answers = 1
        reply = await told.submit()
        assert (reply["ok"], reply["code"]) == (False, "unavailable")
        assert "ask again with the same uid" in reply["error"]
        again = await told.submit()
        assert again["ok"]
        await told.turns(3)
        assert [one for one in await told.ids() if one.endswith("placed")] == ["u-1/1/0/placed"]


async def test_nobody_answers_before_the_service_runs() -> None:
    async with programs(is_started=False) as told:
        with pytest.raises(TransientError):
            await told.submit()


async def test_a_job_that_was_submitted_otherwise_has_status_and_events() -> None:
    async with programs() as told:
        await told.cell.submit(a_job("fast", chips=8))
        await told.turns(2)
        await told.cell.pods("fast", PodPhase.RUNNING)
        await told.turns(1)
        reply: dict[str, Any] = await told.ask("status", {"name": "fast"})
        assert reply["job"]["phase"] == "running"
        assert await told.ids("fast") == ["uid-fast/0/0/accepted", "uid-fast/1/0/placed", "uid-fast/1/0/running"]


async def test_a_status_that_does_not_decode_is_no_job() -> None:
    async with programs() as told:
        await told.bus.publish(told.bus.subjects.status("team", "odd"), b"junk")
        await told.bus.publish(told.bus.subjects.intake_request("team", "odd"), encode(JobCancel("team", "odd")))
        assert (await told.ask("status", {"namespace": "team", "name": "odd"}))["code"] == "not-found"


async def test_a_job_that_is_over_has_the_ranks_that_it_had_last() -> None:
    async with programs() as told:
        await told.lived("one")
        job = (await told.ask("status", {"namespace": "default", "name": "one"}))["job"]
        assert (job["phase"], [(one["rank"], one["chips"]) for one in job["ranks"]]) == (
            "succeeded",
            [(0, list(range(8)))],
        )


async def test_the_last_ranks_are_not_those_of_an_earlier_job_of_the_name() -> None:
    async with programs(nodes=1) as told:
        await told.lived("one")
        other = job_file("one", namespace="default", uid="u-2", product="module910bx8", chips=8, replicas=2)
        assert (await told.ask("submit", {"job": other}))["ok"]
        await told.turns(2)
        await told.ask("cancel", {"namespace": "default", "name": "one"})
        await told.turns(2)
        job = (await told.ask("status", {"namespace": "default", "name": "one"}))["job"]
        assert (job["uid"], job["phase"], job["ranks"]) == ("u-2", "cancelled", [])


async def test_a_job_that_was_cancelled_while_it_waited_has_no_ranks() -> None:
    async with programs(nodes=1) as told:
        await told.submit(product="module910bx8", chips=8, replicas=2)
        await told.turns(2)
        await told.ask("cancel", {"namespace": "team", "name": "train"})
        await told.turns(2)
        job = (await told.ask("status", {"namespace": "team", "name": "train"}))["job"]
        assert (job["phase"], job["ranks"]) == ("cancelled", [])


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"product": "module910bx8", "chips": 9}, "job-shape"),
        ({"product": "modul910bx8", "chips": 8}, "invalid-request"),
        ({"product": "module910bx8", "chip": 8}, "invalid-request"),
        ({"product": "module910bx8", "chips": 8, "minAvailable": 5}, "invalid-request"),
    ],
)
async def test_the_code_tells_a_typo_from_a_shape_that_can_never_fit(spec: dict[str, Any], code: str) -> None:
    async with programs() as told:
        assert (await told.submit(**spec))["code"] == code
