"""Lists over the bus: what each caller gets, in pages, and only once made for each state."""

from typing import Any

import msgspec
import pytest

from berth.core.cluster.domains import domains
from berth.core.cluster.node_table import NodeTable
from berth.core.overview.chip_use import CellUse, cell_use
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.nodes import NodeCondition
from berth.services.api import lists
from berth.services.api.config import ApiConfig, Grant
from tests.support.cells import a_node
from tests.support.programs import Programs, job_file, programs

(DOMAIN,) = domains([a_node("n0")])
TENANTS = ApiConfig(
    access="grants",
    grants=[
        Grant(identity="admin", role="submit", namespaces=["*"]),
        Grant(identity="one", role="submit", namespaces=["team"]),
        Grant(identity="two", role="read", namespaces=["lab"]),
    ],
)


async def pages(told: Programs, verb: str, key: str, request: dict[str, Any], **more: str) -> list[list[Any]]:
    found = []
    after = ""
    while True:
        reply = await told.ask(verb, {**request, "after": after}, **more)
        found.append(reply[key])
        after = reply["next"]
        if not after:
            return found


async def waiting_jobs(told: Programs, count: int, *, namespace: str = "team", identity: str = "") -> None:
    """Jobs that fit nowhere now."""
    for number in range(count):
        job = job_file(
            f"w{number}", namespace=namespace, uid=f"{namespace}-{number}", product="module910bx8", replicas=9, chips=8
        )
        assert (await told.ask("submit", {"job": job}, identity=identity))["ok"]


async def drained(told: Programs, name: str) -> None:
    subject = told.bus.subjects.fact_drain("node", name)
    await told.bus.publish(subject, encode(DrainSeen("node", name, 1, by="root@bastion", reason="fans")))
    await told.turns(2)


async def test_jobs_are_listed_with_their_positions_and_why_they_wait() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        await waiting_jobs(told, 2)
        await told.turns(3)
        reply = await told.ask("jobs", {})
        found = {one["name"]: (one["phase"], one["position"], one["chips"]) for one in reply["jobs"]}
        assert found == {"train": ("placed", 0, 8), "w0": ("waiting", 1, 72), "w1": ("waiting", 2, 72)}
        (first,) = [one for one in reply["jobs"] if one["name"] == "w0"]
        assert first["code"]
        assert first["sentence"] == (await told.ask("status", {"namespace": "team", "name": "w0"}))["job"]["sentence"]
        assert (reply["waiting"], reply["next"]) == (2, "")


async def test_jobs_come_in_pages() -> None:
    async with programs() as told:
        await waiting_jobs(told, 5)
        await told.turns(3)
        found = await pages(told, "jobs", "jobs", {"limit": 2})
        assert [[one["name"] for one in page] for page in found] == [["w0", "w1"], ["w2", "w3"], ["w4"]]


async def test_a_page_looks_at_a_bounded_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_LOOKED_AT_MAX", 2)
    async with programs() as told:
        await waiting_jobs(told, 4)
        await told.submit("z")
        await told.turns(3)
        found = await pages(told, "jobs", "jobs", {"phase": "placed"})
        assert [[one["name"] for one in page] for page in found] == [[], [], ["z"]]


async def test_a_tenant_lists_the_jobs_of_its_namespace_alone() -> None:
    async with programs(is_started=False) as told:
        await told.start(TENANTS)
        await waiting_jobs(told, 1, identity="admin")
        await waiting_jobs(told, 1, namespace="lab", identity="admin")
        await told.turns(3)

        async def seen(identity: str, **asked: object) -> list[str]:
            reply = await told.ask("jobs", asked, identity=identity)
            return [f"{one['namespace']}/{one['name']}" for one in reply["jobs"]]

        assert await seen("admin") == ["lab/w0", "team/w0"]
        assert await seen("one") == ["team/w0"]
        assert await seen("two") == ["lab/w0"]
        assert await seen("two", namespace="lab") == ["lab/w0"]
        assert (await told.ask("jobs", {"namespace": "team"}, identity="two"))["code"] == "denied"
        for verb in ("jobs", "nodes", "usage", "leaves", "superpods", "faults", "drains", "queues"):
            assert (await told.ask(verb, {}, identity="stranger"))["code"] == "denied"


async def test_names_of_jobs_of_other_namespaces_are_in_no_list() -> None:
    async with programs(is_started=False) as told:
        await told.start(TENANTS)
        await told.ask("submit", {"job": job_file("secret", namespace="team")}, identity="admin")
        await told.turns(2)
        await told.cell.health(DOMAIN, [NodeCondition(f"n{at}", level=NodeHealth.SUB_HEALTHY) for at in range(2)])
        await drained(told, "n0")
        await drained(told, "n1")
        requests = {"jobs": {}, "nodes": {"details": True}, "usage": {}, "faults": {}, "drains": {}}
        for verb, request in requests.items():
            assert "secret" in str(await told.ask(verb, request, identity="one")) or verb == "usage"
            reply = await told.ask(verb, request, identity="two")
            assert reply["ok"]
            assert "secret" not in str(reply)
            assert "team" not in str(reply)
        (group,) = (await told.ask("faults", {}, identity="two"))["groups"][:1]
        assert group["kind"] == "NodeSubHealthy"
        found = (await told.ask("drains", {}, identity="two"))["drains"]
        assert [(one["name"], one["by"], one["reason"]) for one in found] == [("n0", "", "fans"), ("n1", "", "fans")]
        assert sum(one["more_jobs"] for one in found) == 1
        assert (await told.ask("drains", {}, identity="admin"))["drains"][0]["by"] == "root@bastion"


async def test_how_full_the_cell_is() -> None:
    async with programs() as told:
        await told.submit()
        await told.turns(2)
        await waiting_jobs(told, 1)
        await told.turns(3)
        reply = await told.ask("usage", {})
        total = reply["total"]
        assert (total["nodes"], total["chips"], total["used"], total["free"], total["nodes_free"]) == (2, 16, 8, 8, 1)
        assert [(one["name"], one["chips"], one["waiting"]) for one in reply["products"]] == [("module910bx8", 16, 72)]
        assert reply["namespaces"] == [{"name": "team", "jobs": 1, "used": 8, "jobs_waiting": 1, "waiting": 72}]
        assert (reply["jobs"], reply["jobs_waiting"], reply["waiting"]) == (1, 1, 72)


async def test_leaves_and_superpods_come_by_name() -> None:
    async with programs() as told:
        await told.cell.nodes([a_node(f"n{at}", leaf=f"leaf-{at // 2}", superpod=f"sp-{at // 4}") for at in range(6)])
        await told.turns(2)
        found = await pages(told, "leaves", "places", {"limit": 2})
        assert [[one["name"] for one in page] for page in found] == [["leaf-0", "leaf-1"], ["leaf-2"]]
        (one,) = (await told.ask("superpods", {"names": ["sp-1"]}))["places"]
        assert (one["name"], one["nodes"], one["chips"]) == ("sp-1", 2, 16)
        usage = await told.ask("usage", {})
        assert (usage["leaves_free"], usage["superpods_free"]) == (3, 2)


async def test_nodes_are_filtered_by_place_and_have_details_if_they_are_asked_for() -> None:
    async with programs() as told:
        await told.cell.nodes([a_node("n0", leaf="l", rack="r"), a_node("n1", product="card910x2", superpod="s")])
        await told.submit()
        await told.turns(3)

        async def names(**asked: object) -> list[str]:
            return [one["name"] for one in (await told.ask("nodes", asked))["nodes"]]

        assert (await names(leaf="l"), await names(superpod="s"), await names(product="card910x2")) == (
            ["n0"],
            ["n1"],
            ["n1"],
        )
        assert await names(leaf="l", superpod="s") == []
        (node,) = (await told.ask("nodes", {"names": ["n0"], "details": True}))["nodes"]
        details = node["details"]
        assert (details["rack"], details["cpu_milli"], details["memory_mib"]) == ("r", 192_000, 1_500_000)
        assert details["labels"]["accelerator-type"]
        assert [(one["name"], one["ranks"], one["chips"]) for one in details["jobs"]] == [
            ("train", [0], list(range(8)))
        ]
        assert "details" not in (await told.ask("nodes", {"names": ["n0"]}))["nodes"][0]


async def test_a_page_of_the_same_state_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(table: NodeTable, now_ms: int) -> CellUse:
        made.append(now_ms)
        return cell_use(table, now_ms)

    monkeypatch.setattr("berth.services.api.usage.cell_use", counted)
    async with programs() as told:
        first = await told.ask("usage", {})
        assert await told.ask("usage", {}) == first
        assert len(made) == 1
        await told.submit()
        await told.turns(2)
        assert (await told.ask("usage", {}))["total"]["used"] == 8
        assert len(made) == 2


async def test_what_is_known_of_faults_and_jobs_is_there_after_a_restart() -> None:
    async with programs() as told:
        await told.cell.health(DOMAIN, [NodeCondition("n0", unhealthy=0b1, reason="chip 0", updated_ms=77)])
        await waiting_jobs(told, 1)
        await told.turns(3)
        (before,) = (await told.ask("faults", {}))["groups"]
        await told.stop()
        await told.start()
        (after,) = (await told.ask("faults", {}))["groups"]
        assert (after["name"], after["reason"], after["since_ms"] in {77, before["since_ms"]}) == ("n0", "chip 0", True)
        assert [one["name"] for one in (await told.ask("jobs", {}))["jobs"]] == ["w0"]


async def test_a_page_that_looks_at_many_jobs_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_LOOKED_AT_A_TOKEN", 1)
    async with programs(is_started=False) as told:
        bounded = msgspec.structs.replace(TENANTS, requests_per_s=0.001, requests_burst=20)
        await told.start(bounded)
        await waiting_jobs(told, 4, identity="admin")
        await told.turns(3)
        replies = [await told.ask("jobs", {"phase": "placed"}, identity="one") for _ in range(5)]
        assert [one.get("code", "ok") for one in replies] == ["ok"] * 4 + ["too-many"]
