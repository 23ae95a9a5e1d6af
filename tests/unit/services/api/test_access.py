"""Who may do what: by identity and namespace, denied by default where a cell has authentication."""

from pathlib import Path

import pytest

from berth.runtime.config import BusConfig
from berth.schemas.envelope import decode
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig, Grant
from tests.support.programs import Programs, events_in, job_file, programs

GRANTS = ApiConfig(
    access="grants",
    grants=[
        Grant(identity="alice", role="submit", namespaces=["team", "lab"]),
        Grant(identity="bob", role="read", namespaces=["team"]),
        Grant(identity="root@a.b", role="submit", namespaces=["*"]),
        Grant(identity="*", role="read", namespaces=["open"]),
    ],
)
JOB = {"namespace": "team", "name": "train"}


async def submit(told: Programs, identity: str, namespace: str = "team", name: str = "train") -> str:
    """Code of the reply; ``ok`` if it was taken."""
    job = job_file(name, namespace=namespace, uid=f"u-{namespace}-{name}")
    reply = await told.ask("submit", {"job": job}, identity=identity)
    return "ok" if reply["ok"] else reply["code"]


async def test_only_who_is_granted_it_may_submit_and_the_identity_is_recorded() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        assert await submit(told, "alice") == "ok"
        assert await submit(told, "root@a.b", name="other") == "ok"
        for identity in ("bob", "carol", ""):
            assert await submit(told, identity, name="third") == "denied"
        assert await submit(told, "alice", "prod") == "denied"
        stored = await told.bus.read(StreamName.INTAKE)
        requests = [decode(one.data, JobRequest) for one in stored]
        assert [request.submitted_by for request in requests] == ["alice", "root@a.b"]


@pytest.mark.parametrize("verb", ["status", "explain"])
async def test_only_who_is_granted_it_may_read(verb: str) -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        await submit(told, "alice")
        await told.turns(2)
        for identity in ("alice", "bob", "root@a.b"):
            assert (await told.ask(verb, JOB, identity=identity))["ok"]
        for identity in ("carol", ""):
            assert (await told.ask(verb, JOB, identity=identity))["code"] == "denied"
        reply = await told.ask(verb, {"namespace": "open", "name": "x"}, identity="carol")
        assert reply["code"] == "not-found", "everyone who has an identity may read there"
        assert (await told.ask(verb, {"namespace": "open", "name": "x"}))["code"] == "denied"


@pytest.mark.parametrize("policy", ["none", "fifo", "easy", "conservative"])
async def test_jobs_of_namespaces_that_a_reader_may_not_read_have_no_names(policy: str) -> None:
    async with programs(nodes=2, is_started=False, queue_policy=policy, reserve_chips=1) as told:
        await told.start(GRANTS)
        for name, spec in (
            ("secret-running", {"product": "module910bx8", "chips": 8, "runFor": "1h"}),
            ("secret-ahead", {"product": "module910bx8", "chips": 8, "replicas": 2, "runFor": "1h"}),
        ):
            job = job_file(name, namespace="prod", uid=f"u-{name}", **spec)
            assert (await told.ask("submit", {"job": job}, identity="root@a.b"))["ok"]
            await told.turns(2)
        own = job_file("own", product="module910bx8", chips=8, replicas=2 if policy == "none" else 1, runFor="9h")
        assert (await told.ask("submit", {"job": own}, identity="alice"))["ok"]
        await told.turns(3)
        asked = {"namespace": "team", "name": "own"}
        whole = await told.ask("explain", asked, identity="root@a.b")
        assert whole["phase"] == "waiting"
        assert "prod/secret" in " ".join(whole["sentences"])
        found = await told.ask("explain", asked, identity="bob")
        texts = [found, await told.ask("status", asked, identity="bob"), *await events_in(told.bus, "team", "own")]
        assert [text for text in texts if "secret" in str(text)] == []
        assert "a job of another namespace" in " ".join(found["sentences"])
        assert len(found["sentences"]) == len(whole["sentences"])


async def test_a_reader_may_neither_change_nor_cancel() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        await submit(told, "alice")
        await told.turns(2)
        reply = await told.ask("update", {**JOB, "change": {"held": True}}, identity="bob")
        assert reply["code"] == "denied"
        reply = await told.ask("cancel", JOB, identity="bob")
        assert reply["error"] == "identity is 'bob', expected one that may submit jobs in namespace team"
        reply = await told.ask("cancel", JOB, identity="alice")
        (stored,) = (one for one in await told.bus.read(StreamName.INTAKE) if ".cancel." in one.subject)
        assert (reply["ok"], stored.sequence) == (True, reply["sequence"])
        assert decode(stored.data, JobCancel).cancelled_by == "alice"


async def test_nodes_may_be_read_by_who_may_read_anywhere() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        assert (await told.ask("nodes", {}, identity="carol"))["ok"], "carol may read in one namespace"
        assert (await told.ask("nodes", {}))["error"] == "identity is missing, expected one that may read"


async def test_an_identity_that_is_no_token_is_denied() -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        reply = await told.bus.request(f"{told.bus.subjects.api('nodes')}.=x", b"{}", timeout_s=5)
        assert b'"code":"denied"' in reply


async def test_a_cell_without_authentication_is_open_and_records_the_identity_that_is_given() -> None:
    async with programs(is_started=False) as told:
        await told.start(ApiConfig())
        assert await submit(told, "") == "ok"
        assert await submit(told, "alice", name="other") == "ok"


@pytest.mark.parametrize(
    ("config", "is_open"),
    [
        (ApiConfig(), True),
        (ApiConfig(access="grants"), False),
        (ApiConfig(bus=BusConfig(user="api", password_file=Path("p"))), False),
        (ApiConfig(bus=BusConfig(creds_file=Path("c"))), False),
        (ApiConfig(bus=BusConfig(token_file=Path("t"))), False),
        (ApiConfig(access="open", bus=BusConfig(creds_file=Path("c"))), True),
    ],
)
def test_who_logs_in_to_nats_denies_by_default(config: ApiConfig, *, is_open: bool) -> None:
    assert config.is_open == is_open


@pytest.mark.parametrize(
    ("identity", "read", "submit"),
    [
        ("alice", ["lab", "open", "team"], ["lab", "team"]),
        ("bob", ["open", "team"], []),
        ("root@a.b", ["*"], ["*"]),
        ("carol", ["open"], []),
        ("", [], []),
    ],
)
async def test_everybody_may_ask_what_it_may_do(identity: str, read: list[str], submit: list[str]) -> None:
    async with programs(is_started=False) as told:
        await told.start(GRANTS)
        reply = await told.ask("rights", {}, identity=identity)
        assert reply == {"ok": True, "identity": identity, "read": read, "submit": submit, "operate": False}


async def test_in_an_open_cell_everybody_may_do_everything() -> None:
    async with programs() as told:
        reply = await told.ask("rights", {}, identity="carol")
        assert (reply["read"], reply["submit"]) == (["*"], ["*"])
        assert (await told.ask("rights", {"identity": "alice"}))["code"] == "invalid-request"
