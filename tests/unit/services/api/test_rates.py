"""How often a program may ask."""

import pytest

from berth.schemas.intake import TASKS
from berth.services.api.config import ApiConfig, Grant
from berth.services.api.rates import _KEPT_MAX, Rates
from berth.services.api.request_errors import RequestError
from tests.support.clock import ManualClock
from tests.support.programs import job_file, programs
from tests.support.stored_events import events

ANYBODY = Grant(identity="*", role="read", namespaces=["*"])


def refused(rates: Rates, identity: str, data: bytes = b"") -> RequestError | None:
    try:
        rates.take(identity, data)
    except RequestError as error:
        return error
    return None


def test_after_a_burst_an_identity_has_its_rate_and_others_have_theirs() -> None:
    clock = ManualClock()
    rates = Rates(clock, per_s=10, burst=5)
    assert [refused(rates, "a") for _ in range(5)] == [None] * 5
    error = refused(rates, "a")
    assert error is not None
    assert (error.code, error.retry_after_ms) == ("too-many", 100)
    assert error.error == "identity is 'a' with more than 10 requests a second, expected fewer: try again in 0.1 s"
    assert refused(rates, "b") is None
    clock.advance(0.1)
    assert refused(rates, "a") is None
    assert refused(rates, "a") is not None


def test_a_long_request_counts_as_more_by_its_bytes_and_its_objects() -> None:
    rates = Rates(ManualClock(), per_s=1, burst=100)
    assert refused(rates, "bytes", b"x" * 90 * 4096) is None
    assert refused(rates, "bytes", b"x" * 20 * 4096) is not None
    assert refused(rates, "bytes", b"x" * 8 * 4096) is None
    assert refused(rates, "objects", b"{}" * 8 * 90) is None
    assert refused(rates, "objects", b"{}" * 8 * 20) is not None


async def test_a_request_that_is_wrong_counts_as_ten() -> None:
    tasks = [{"name": f"t{number}", "replicas": 1, "chips": 1} for number in range(TASKS.most + 1)]
    too_large = {"job": job_file(product="module910bx8", tasks=tasks)}
    async with programs(is_started=False) as told:
        await told.start(ApiConfig(requests_per_s=0.01, requests_burst=2 * TASKS.most))
        assert (await told.ask("submit", too_large, identity="portal"))["code"] == "invalid-request"
        assert (await told.ask("rights", {}, identity="portal"))["ok"]
        assert (await told.ask("submit", too_large, identity="portal"))["code"] == "invalid-request"
        assert (await told.ask("rights", {}, identity="portal"))["code"] == "too-many"
        assert (await told.ask("rights", {}, identity="other"))["ok"]


async def test_a_reply_about_many_nodes_counts_by_their_number() -> None:
    async with programs(nodes=40, is_started=False) as told:
        await told.start(ApiConfig(requests_per_s=0.01, requests_burst=4))
        assert len((await told.ask("nodes", {"limit": 40}, identity="portal"))["nodes"]) == 40
        assert (await told.ask("rights", {}, identity="portal"))["code"] == "too-many"


async def test_a_reply_with_many_events_counts_by_their_number() -> None:
    config = ApiConfig(access="grants", requests_per_s=0.01, requests_burst=9, grants=[ANYBODY])
    async with events(config) as told:
        told.store(*range(1_000))
        assert len((await told.ask("portal"))["events"]) == 1_000
        assert (await told.ask("portal"))["code"] == "too-many"
        assert len((await told.ask("other", limit=99))["events"]) == 99
        assert (await told.ask("other", limit=1))["ok"]


async def test_a_job_of_many_tasks_counts_by_their_number() -> None:
    async with programs(is_started=False) as told:
        await told.start(ApiConfig(requests_per_s=0.01, requests_burst=100))
        tasks = [{"name": f"t{number}", "chips": 1} for number in range(200)]
        job = job_file("many", product="module910bx8", tasks=tasks)
        assert (await told.ask("submit", {"job": job}, identity="portal"))["ok"]
        assert (await told.ask("rights", {}, identity="portal"))["code"] == "too-many"


def test_a_request_that_costs_more_than_a_burst_takes_all_of_it() -> None:
    clock = ManualClock()
    rates = Rates(clock, per_s=10, burst=10)
    assert refused(rates, "a", b"x" * (1 << 20)) is None
    error = refused(rates, "a", b"x" * (1 << 20))
    assert error is not None
    assert error.retry_after_ms == 1_000
    clock.advance(1)
    assert refused(rates, "a", b"x" * (1 << 20)) is None


def test_any_number_of_identities_takes_bounded_memory_and_a_spent_bucket_stays_spent() -> None:
    rates = Rates(ManualClock(), per_s=1, burst=2)
    for _ in range(2):
        rates.take("busy", b"")
    for number in range(3 * _KEPT_MAX):
        rates.take(f"other-{number}", b"")
    assert len(rates._buckets) <= _KEPT_MAX
    assert refused(rates, "busy") is not None


async def test_a_program_that_asks_too_often_is_told_when_to_ask_again() -> None:
    async with programs(is_started=False) as told:
        await told.start(ApiConfig(requests_per_s=0.5, requests_burst=2))
        answers = [await told.ask("rights", {}, identity="portal") for _ in range(3)]
        assert [one["ok"] for one in answers] == [True, True, False]
        assert (answers[2]["code"], answers[2]["retry_after_ms"]) == ("too-many", 2_000)
        assert (await told.ask("rights", {}, identity="other"))["ok"]


async def test_callers_without_an_identity_have_no_bound_in_an_open_cell_alone() -> None:
    for access, last in (("open", ""), ("grants", "too-many")):
        async with programs(is_started=False) as told:
            await told.start(ApiConfig(access=access, requests_per_s=0.5, requests_burst=2))  # type: ignore[arg-type]
            answers = [await told.ask("rights", {}) for _ in range(3)]
            assert answers[2].get("code", "") == last


@pytest.mark.parametrize("count", [2, 20])
async def test_a_job_beyond_those_that_may_wait_is_not_stored(count: int) -> None:
    async with programs(nodes=0, waiting_jobs_max=2) as told:
        for number in range(2):
            assert (await told.submit(f"job-{number}", uid=""))["ok"]
        await told.turns(3)
        for number in range(2, 2 + count):
            reply = await told.submit(f"job-{number}", uid="")
            assert (reply["ok"], reply["code"]) == (False, "too-many")
            assert reply["error"].startswith(
                "job.metadata.namespace is one with 2 waiting jobs, expected at most 2 with this one"
            )
        assert (await told.submit("mine", uid="", namespace="other"))["ok"]
        await told.ask("cancel", {"namespace": "team", "name": "job-0"})
        await told.turns(3)
        assert (await told.submit("job-2", uid=""))["ok"]
