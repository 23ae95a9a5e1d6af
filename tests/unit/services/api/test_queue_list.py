"""The list of queues: what each is entitled to, holds and may hold, and what a tenant reads of it."""

from typing import Any

from berth.schemas.envelope import encode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from tests.support.programs import Programs, job_file, programs
from tests.unit.services.api.test_lists import TENANTS

NPU = "huawei.com/Ascend910"


async def declared(told: Programs, *queues: Queue) -> None:
    for queue in queues:
        await told.bus.publish(told.bus.subjects.fact_queue(queue.name), encode(QueueSeen(queue)))
    await told.turns(2)


async def listed(told: Programs, **asked: Any) -> dict[str, Any]:  # noqa: ANN401  # as a request has it
    identity = asked.pop("identity", "admin")
    reply = await told.ask("queues", asked, identity=identity)
    assert reply["ok"]
    return {one["name"]: one for one in reply["queues"]}


async def test_queues_have_their_amounts_and_the_jobs_that_wait() -> None:
    async with programs(nodes=2, is_started=False, queues=2) as told:
        await told.start()
        await declared(told, Queue("a", parent="lab", capability={NPU: 800}, weight=3), Queue("lab"))
        for name in ("j0", "j1", "j2"):
            told.cell.clock.advance(1)
            spec: dict[str, Any] = {"product": "module910bx8", "replicas": 1, "chips": 8, "queue": "a"}
            assert (await told.ask("submit", {"job": job_file(name, uid=f"u-{name}", **spec)}))["ok"]
            await told.turns(2)
        await told.turns(4)
        reply = await told.ask("queues", {})
        assert reply["are_applied"]
        found = {one["name"]: one for one in reply["queues"]}
        assert list(found) == ["a", "default", "lab", "root"]
        (chips,) = (one for one in found["a"]["amounts"] if one["resource"] == NPU)
        assert chips == {"resource": NPU, "held": 8.0, "entitled": 8.0, "limit": 8.0}
        assert (found["a"]["waiting"], found["a"]["parent"], found["a"]["weight"]) == (2, "lab", 3)
        waits = (await told.ask("jobs", {"phase": "waiting"}))["jobs"]
        assert [one["name"] for one in waits] == ["j1", "j2"]
        assert waits[0]["submitted_ms"] < waits[1]["submitted_ms"]
        assert [found[name]["oldest_ms"] for name in ("a", "lab")] == [waits[0]["submitted_ms"], 0]
        assert {name: one["is_declared"] for name, one in found.items()} == {
            "a": True,
            "default": False,
            "lab": True,
            "root": False,
        }
        (above,) = (one for one in found["lab"]["amounts"] if one["resource"] == NPU)
        assert (above["held"], above["limit"]) == (8.0, None)


async def test_a_queue_that_is_not_valid_says_why_and_the_others_are_there() -> None:
    async with programs(nodes=1, is_started=False, queues=1) as told:
        await told.start()
        await declared(told, Queue("lost", parent="gone"), Queue("b", state="Closing"))
        found = await listed(told)
        assert (found["lost"]["is_valid"], found["lost"]["reason"]) == (False, "its parent gone does not exist")
        assert (found["b"]["is_valid"], found["b"]["state"]) == (True, "Closing")


async def test_queues_are_listed_where_they_do_nothing_without_amounts() -> None:
    async with programs(nodes=1, is_started=False) as told:
        await told.start()
        assert await listed(told) == {}
        await declared(told, Queue("a"))
        reply = await told.ask("queues", {})
        assert (reply["are_applied"], [one["amounts"] for one in reply["queues"]]) == (False, [[], [], []])


async def test_pages_follow_one_another() -> None:
    async with programs(nodes=1, is_started=False, queues=1) as told:
        await told.start()
        await declared(told, *(Queue(name) for name in ("a", "b", "c")))
        first = await told.ask("queues", {"limit": 2})
        rest = await told.ask("queues", {"limit": 9, "after": first["next"]})
        names = [one["name"] for reply in (first, rest) for one in reply["queues"]]
        assert (names, rest["next"]) == (["a", "b", "c", "default", "root"], "")


async def test_a_tenant_reads_no_names_of_other_namespaces() -> None:
    async with programs(nodes=1, is_started=False, queues=1) as told:
        await told.start(TENANTS)
        await declared(told, Queue("a", namespaces=["lab", "team"]))
        assert (await listed(told))["a"]["namespaces"] == ["lab", "team"]
        assert (await listed(told, identity="two"))["a"]["namespaces"] == ["lab"]
