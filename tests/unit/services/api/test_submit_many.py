"""Several jobs in one request: each is stored or refused by itself."""

import pytest

from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig, Grant
from tests.support.programs import job_file, programs


async def test_of_several_jobs_each_is_stored_or_refused_by_itself() -> None:
    async with programs() as told:
        jobs = [job_file("a", uid="u-a"), {"kind": "Job"}, job_file("b", uid="u-b", product="module910bx8", chips=9)]
        reply = await told.ask("submit-many", {"jobs": [*jobs, job_file("c", uid="u-c"), job_file("a", uid="u-x")]})
        found = [(one["ok"], one["name"], one["code"]) for one in reply["results"]]
        assert found[:4] == [
            (True, "a", ""),
            (False, "", "invalid-request"),
            (False, "b", "job-shape"),
            (True, "c", ""),
        ]
        assert reply["results"][1]["error"].startswith("jobs[1].apiVersion is missing")
        assert reply["stored"] == sum(one["ok"] for one in reply["results"])
        await told.turns(2)
        again = await told.ask("submit-many", {"jobs": [jobs[0]]})
        assert again["results"][0] | {"duplicate": True} == reply["results"][0] | {"duplicate": True}
        assert again["results"][0]["duplicate"]


@pytest.mark.parametrize("jobs", [[], [job_file()] * 101, {}, None])
async def test_no_jobs_and_too_many_are_refused_as_a_whole(jobs: object) -> None:
    async with programs() as told:
        reply = await told.ask("submit-many", {"jobs": jobs})
        assert (reply["ok"], reply["code"]) == (False, "invalid-request")
        assert await told.bus.read(StreamName.INTAKE) == []


async def test_each_of_several_jobs_needs_the_right_to_its_namespace() -> None:
    async with programs(is_started=False) as told:
        grants = [
            Grant(identity="one", role="submit", namespaces=["team"]),
            Grant(identity="two", role="read", namespaces=["*"]),
        ]
        await told.start(ApiConfig(access="grants", grants=grants))
        jobs = [job_file("a"), job_file("b", namespace="lab", uid="u-2")]
        reply = await told.ask("submit-many", {"jobs": jobs}, identity="one")
        assert [(one["ok"], one["code"]) for one in reply["results"]] == [(True, ""), (False, "denied")]
        assert (await told.ask("submit-many", {"jobs": jobs}, identity="two"))["code"] == "denied"


@pytest.mark.parametrize(("spec", "answered"), [({}, 4), ({"chip": 8}, 1)])
async def test_several_jobs_cost_what_as_many_requests_would_and_wrong_ones_more(
    spec: dict[str, object], answered: int
) -> None:
    async with programs(is_started=False) as told:
        grants = [Grant(identity="one", role="submit", namespaces=["*"])]
        await told.start(ApiConfig(access="grants", grants=grants, requests_per_s=0.001, requests_burst=35))
        codes = []
        for number in range(5):
            jobs = [job_file(f"j{number}-{at}", uid=f"u{number}-{at}", **spec) for at in range(10)]  # type: ignore[arg-type]  # fields of the file
            codes.append((await told.ask("submit-many", {"jobs": jobs}, identity="one")).get("code", "ok"))
        assert codes == ["ok"] * answered + ["too-many"] * (5 - answered)
