"""The extender of a real gateway beside a cell that places jobs: it says what was decided, and decides nothing."""

import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.columns import pack
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import MembersSeen, OutcomeSeen
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.certificates import authority, certificate
from tests.support.load import give_jobs
from tests.support.processes import ROOT, Service, services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(120)
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 1},
    "scorer": {"shards": 1},
    "binder": {},
    "nodesim": {"topology_file": str(ROOT / "docs" / "examples" / "cluster.yaml")},
}
NAMESPACE: Final = "default"


class Caller:
    """Calls the extender as kube-scheduler does."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(self, verb: str, body: object) -> tuple[int, Any]:
        """Status and answer."""
        async with self._session.post(f"{self._url}/{verb}", json=body) as answer:
            return answer.status, await answer.json()

    async def filter(self, uid: str, nodes: list[str], namespace: str = NAMESPACE) -> Any:  # noqa: ANN401  # JSON
        """Answer about a pod."""
        pod = {"metadata": {"name": f"pod-{uid}", "namespace": namespace, "uid": uid}, "spec": {"containers": []}}
        status, answer = await self.call("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        assert (status, answer["Error"]) == (200, ""), answer
        return answer

    async def bind(self, uid: str, node: str) -> str:
        """Error of a binding."""
        status, answer = await self.call(
            "bind", {"PodName": f"pod-{uid}", "PodNamespace": NAMESPACE, "PodUID": uid, "Node": node}
        )
        assert status == 200, answer
        error: str = answer["Error"]
        return error


def members(job: str, *uids: str, uid: str = "", hold: str = "") -> MembersSeen:
    """Pods of a job."""
    ranks = pack(range(len(uids)), 4)
    pods = [f"pod-{one}" for one in uids]
    return MembersSeen(NAMESPACE, job, uid or f"uid-{job}", ranks, pods, list(uids), hold=hold)


async def publish_members(bus: NatsBus, fact: MembersSeen) -> None:
    await bus.publish(bus.subjects.fact_member(fact.namespace, fact.job), encode(fact))


async def status_of(bus: NatsBus, job: str, *phases: str) -> JobStatus:
    """Status of a job once it is in one of the phases."""
    found: list[JobStatus] = []

    async def there() -> bool:
        stored = await bus.last(StreamName.STATUS, bus.subjects.status(NAMESPACE, job))
        found[:] = [decode(stored.data, JobStatus)] if stored is not None else []
        return bool(found) and found[0].phase in phases

    await until_true(there, deadline_s=40, what=f"{job} is {phases}")
    return found[0]


@asynccontextmanager
async def calling(port: int, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Caller]:
    """A caller, once the extender answers."""
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else False)
    async with aiohttp.ClientSession(connector=connector) as session:
        caller = Caller(session, f"{'https' if tls is not None else 'http'}://127.0.0.1:{port}")

        async def answers() -> bool:
            try:
                return (await caller.call("filter", ANYBODY))[0] == 200  # 503 while it reads what is stored
            except aiohttp.ClientConnectorError:
                return False

        await until_true(answers, deadline_s=30, what="the extender answers")
        yield caller


META: Final = ("name", "namespace", "uid")
ANYBODY: Final = {"Pod": {"metadata": dict.fromkeys(META, "x")}, "NodeNames": []}


def started(stack: ExitStack, folder: Path, url: str, cell: str, port: int, *names: str) -> dict[str, Service]:
    """Services of a cell, and a gateway with an extender."""
    made = stack.enter_context(services(folder, url))
    running = {name: made.service(name, cell, **SETTINGS[name]) for name in names}
    running["gateway"] = made.service(
        "gateway", cell, port=0, access="open", extender={"port": port, "access": "network", "bind_wait_s": 20}
    )
    for service in running.values():
        service.start()
    return running


async def test_a_pod_goes_where_berth_has_placed_it_and_is_bound_by_the_binder_alone(
    real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    with ExitStack() as stack:
        running = started(stack, tmp_path, nats_server, cell, port, "dispatcher", "scorer", "nodesim")
        async with calling(port) as caller:
            await publish_members(real_bus, members("train", "p0", "p1"))
            await give_jobs(real_bus, a_job("train", chips=8, replicas=2))
            status = await status_of(real_bus, "train", "placed")
            assert status.placement is not None
            first, second = status.placement.names()
            assert first != second

            async def is_offered() -> bool:
                """The gateway reads members by itself, and does not offer a pod that it does not know."""
                return bool((await caller.filter("p0", [first])).get("NodeNames") == [first])

            await until_true(is_offered, deadline_s=10, what="the gateway to know the pod")
            answer = await caller.filter("p0", ["other", first, second])
            reason = f"Berth has placed this pod on node {first}"
            assert answer["NodeNames"] == [first]
            assert answer["FailedAndUnresolvableNodes"] == {"other": reason, second: reason}
            away = await caller.filter("p0", ["other", second])
            assert away["NodeNames"] == []
            assert set(away["FailedAndUnresolvableNodes"].values()) == {
                f"{reason}, which kube-scheduler does not offer"
            }
            assert await caller.bind("p0", second) == f"node is {second}, expected {first}: {reason}"

            # The binder runs only now: a binding waits for it, and is confirmed.
            seen = await real_bus.last(StreamName.LATEST, real_bus.subjects.fact_outcome(NAMESPACE, "train"))
            assert seen is None
            running["binder"] = stack.enter_context(services(tmp_path, nats_server)).service("binder", cell)
            running["binder"].start()
            assert await caller.bind("p0", first) == ""
            facts = await real_bus.state(StreamName.FACTS)
            await real_bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=30)
            seen = await real_bus.last(StreamName.LATEST, real_bus.subjects.fact_outcome(NAMESPACE, "train"))
            assert seen is not None
            assert decode(seen.data, OutcomeSeen).state == "bound"
            assert await caller.bind("p1", second) == ""


async def test_a_pod_without_a_place_is_offered_no_node_and_the_reason(
    real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    with ExitStack() as stack:
        running = started(stack, tmp_path, nats_server, cell, port, "dispatcher", "scorer", "nodesim")
        async with calling(port) as caller:
            await publish_members(real_bus, members("huge", "h0"))
            await publish_members(
                real_bus, members("held", "x0", uid="none", hold="pod x0 waits for scheduling gate g")
            )
            await give_jobs(real_bus, a_job("huge", chips=8, replicas=5000))
            await status_of(real_bus, "huge", "waiting")
            for uid, reason in (
                ("h0", "waits: larger than the cluster"),
                ("x0", "waits: pod x0 waits for scheduling gate g"),
                ("stranger", "not requested through Berth"),
            ):

                async def is_told(uid: str = uid, reason: str = reason) -> bool:
                    answer = await caller.filter(uid, ["a", "b"])
                    assert answer["NodeNames"] == []
                    told = set(answer["FailedAndUnresolvableNodes"].values())
                    assert answer["FailedAndUnresolvableNodes"].keys() == {"a", "b"}
                    return len(told) == 1 and reason in told.pop()

                await until_true(is_told, deadline_s=20, what=f"{uid} waits: {reason}")
            assert "not requested" in await caller.bind("stranger", "a")
            assert (await caller.filter("h0", ["a"], namespace="other"))["NodeNames"] == []

            # A new process knows the same.
            await running["gateway"].stop()
            running["gateway"].start()
            async with calling(port) as again:
                answer = await again.filter("h0", ["a"])
                assert answer["FailedAndUnresolvableNodes"]["a"].startswith("waits: larger than the cluster")


async def test_wrong_calls_are_refused_by_their_field(
    real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    await real_bus.ensure_streams()
    (port,) = free_ports(1)
    with ExitStack() as stack:
        started(stack, tmp_path, nats_server, cell, port)
        async with calling(port) as caller:
            assert await caller.call("filter", {"NodeNames": []}) == (
                400,
                {"ok": False, "error": "Pod is missing, expected the pod", "code": "invalid-request"},
            )
            assert (await caller.call("bind", {"PodName": 3}))[1]["error"] == "PodName is of type int, expected str"
            assert (await caller.call("prioritize", {}))[0] == 404
            victims = {"Pod": {"metadata": dict.fromkeys(META, "x")}, "NodeNameToMetaVictims": {"a": {"Pods": []}}}
            assert await caller.call("preempt", victims) == (200, {"NodeNameToMetaVictims": {}})


def client_tls(ca: Path, pair: tuple[Path, Path] | None) -> ssl.SSLContext:
    """TLS of a client."""
    context = ssl.create_default_context(cafile=str(ca))
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


async def test_a_client_without_a_certificate_of_the_authority_gets_no_answer(
    real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    await real_bus.ensure_streams()
    own, clients, others = (authority(tmp_path, name) for name in ("own", "clients", "others"))
    cert, key = certificate(tmp_path, "gateway", own)
    (port,) = free_ports(1)
    with services(tmp_path, nats_server) as made:
        section = {"port": port, "tls_cert_file": cert, "tls_key_file": key, "client_ca_file": clients}
        made.service("gateway", cell, port=0, access="open", extender=section).start()
        scheduler = certificate(tmp_path, "kube-scheduler", clients)
        async with calling(port, tls=client_tls(own, scheduler)) as caller:
            assert (await caller.filter("stranger", ["a"]))["NodeNames"] == []
        stranger = certificate(tmp_path, "stranger", others)
        for pair in (None, stranger):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_tls(own, pair))) as session:
                with pytest.raises(aiohttp.ClientError):
                    await session.post(f"https://127.0.0.1:{port}/preempt", json={})


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"port": 1}, "extender.tls_cert_file"),
        ({"port": 1, "access": "network", "tls_cert_file": "c.pem"}, "extender.tls_key_file"),
        ({"port": 1, "tls_cert_file": "c.pem", "tls_key_file": "k.pem"}, "extender.client_ca_file"),
        ({"port": 1, "access": "network", "client_ca_file": "c.pem"}, "extender.client_ca_file"),
        ({"port": 70000}, "extender.port"),
    ],
)
async def test_settings_that_do_not_fit_end_the_start(
    nats_server: str, cell: str, tmp_path: Path, section: dict[str, object], field: str
) -> None:
    with services(tmp_path, nats_server) as made:
        service = made.service("gateway", cell, port=0, access="open", extender=section)
        service.start()
        assert await service.ended() == 2
        assert field in service.log()
