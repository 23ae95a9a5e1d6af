"""The client against a real server: rights, service accounts, and what the server refuses."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from berth.formats.kubernetes.objects import ConfigMap, Listed, Pod
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import RefusedError
from tests.support.waiting import until_true

DEADLINE_S = 10
MAPS = "/api/v1/namespaces/default/configmaps"


@asynccontextmanager
async def connected(server: KubeServer, folder: Path, *, user: str = "admin") -> AsyncIterator[KubeApi]:
    config = KubeConfig(kubeconfig=server.write_kubeconfig(folder / f"kubeconfig-{user}", user=user))
    async with await KubeApi.connect(config, clock=SystemClock()) as api:
        yield api


@pytest.mark.usefixtures("kube_prepared")
async def test_it_speaks_with_the_server(kube_server: KubeServer, tmp_path: Path) -> None:
    async with connected(kube_server, tmp_path) as api:
        assert await api.version() == kube_server.version
        assert await api.serves("v1", "pods")
        assert await api.serves("scheduling.volcano.sh/v1beta1", "podgroups")
        assert not await api.serves("v1", "podgroups")
        assert not await api.serves("example.com/v1", "pods")


async def grant(admin: KubeApi, user: str, resource: str, verb: str) -> None:
    """Give a user a right in the whole cluster."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": [resource], "verbs": [verb]}
    await admin.create(f"{rbac}/clusterroles", {"metadata": {"name": f"{user}-may"}, "rules": [rule]})
    await admin.create(
        f"{rbac}/clusterrolebindings",
        {
            "metadata": {"name": f"{user}-may"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{user}-may"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        },
    )


async def until_empty(api: KubeApi, path: str) -> None:
    """Wait until a right to list holds; nothing is there."""

    async def is_listed() -> bool:
        try:
            return (await api.get(path, Listed[Pod])).items == []
        except RefusedError:
            return False

    await until_true(is_listed, deadline_s=DEADLINE_S, what=f"the right to list {path}")


async def test_a_right_that_is_missing_is_a_refusal(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    async with connected(kube_server, tmp_path, user="stranger") as api, connected(kube_server, tmp_path) as admin:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        for attempt in (
            api.get(pods, Listed[Pod]),
            api.create(pods, {"metadata": {"name": "one"}}),
            api.delete(f"{pods}/one"),
        ):
            with pytest.raises(RefusedError, match='User "stranger" cannot') as caught:
                await attempt
            assert (caught.value.status, caught.value.cause) == (403, "Forbidden")
        await grant(admin, "stranger", "pods", "list")
        await until_empty(api, pods)


async def test_a_service_account_leads_to_the_server(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    async with connected(kube_server, tmp_path) as admin:
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await admin.create(accounts, {"metadata": {"name": "worker"}})
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = json.loads(await admin.create(f"{accounts}/worker/token", asked))
    (tmp_path / "token").write_text(answer["status"]["token"] + "\n")
    (tmp_path / "ca.crt").write_bytes(kube_server.ca_file.read_bytes())
    url = urlsplit(kube_server.url)
    environ = {"KUBERNETES_SERVICE_HOST": str(url.hostname), "KUBERNETES_SERVICE_PORT": str(url.port)}
    config = KubeConfig()
    async with await KubeApi.connect(config, clock=SystemClock(), environ=environ, service_account=tmp_path) as api:
        assert await api.version() == kube_server.version
        with pytest.raises(RefusedError, match=f"system:serviceaccount:{namespace}:worker"):
            await api.get(f"/api/v1/namespaces/{namespace}/pods", Listed[Pod])


async def test_a_token_that_the_server_does_not_know(kube_server: KubeServer, tmp_path: Path) -> None:
    path = kube_server.write_kubeconfig(tmp_path / "kubeconfig")
    path.write_text(path.read_text().replace(kube_server.admin_token, "unknown"))
    async with await KubeApi.connect(KubeConfig(kubeconfig=path), clock=SystemClock()) as api:
        with pytest.raises(TransientError, match="HTTP 401"):
            await api.get("/api/v1/namespaces/default", ConfigMap)


async def test_what_the_server_finds_wrong(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    async with connected(kube_server, tmp_path) as api:
        with pytest.raises(RefusedError, match="must be no more than 253") as caught:
            await api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "x" * 300}})
        assert (caught.value.status, caught.value.cause) == (422, "Invalid")
        with pytest.raises(RefusedError) as caught:
            await api.create(f"/api/v1/namespaces/{namespace}/configmaps", b"{")
        assert caught.value.status == 400
        with pytest.raises(RefusedError) as caught:
            await api.create("/api/v1/namespaces/missing/configmaps", {"metadata": {"name": "x"}})
        assert caught.value.is_absent
        with pytest.raises(RefusedError) as caught:
            await api.create(f"/api/v1/namespaces/{namespace}", {})
        assert caught.value.status == 405


async def test_many_calls_at_a_time(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with connected(kube_server, tmp_path) as api:
        async with asyncio.TaskGroup() as group:
            for index in range(100):
                group.create_task(api.create(path, {"metadata": {"name": f"map-{index:03}"}}))
        found = await api.get(path, Listed[ConfigMap], params={"fieldSelector": "metadata.name!=kube-root-ca.crt"})
    assert [item.metadata.name for item in found.items or ()] == [f"map-{index:03}" for index in range(100)]


async def test_an_overloaded_server_and_one_that_is_gone(tmp_path: Path) -> None:
    flags = ("--max-requests-inflight=2", "--max-mutating-requests-inflight=2", "--enable-priority-and-fairness=false")
    server = KubeServer(tmp_path / "server", users={"berth": ()}, controllers=(), api_args=flags, start_deadline_s=40)
    async with server, connected(server, tmp_path, user="berth") as api, connected(server, tmp_path) as admin:
        await grant(admin, "berth", "configmaps", "list")
        await until_empty(api, MAPS)

        async def wait_in_vain(outcomes: list[TransientError]) -> None:
            with pytest.raises(TransientError) as caught:
                await api.get(MAPS, Listed[ConfigMap], params={"resourceVersion": "1000000000"})
            outcomes.append(caught.value)

        async def are_refused() -> bool:
            """Whether two got the slots; on a busy machine not all come at the same time."""
            outcomes: list[TransientError] = []
            async with asyncio.TaskGroup() as group:
                for _ in range(6):
                    group.create_task(wait_in_vain(outcomes))
            said = Counter(
                next(text for text in ("HTTP 429", "Too large resource version") if text in str(one))
                for one in outcomes
            )
            assert {one.retry_after_s >= 1 for one in outcomes} == {True}
            return said == {"HTTP 429": 4, "Too large resource version": 2}

        await until_true(are_refused, deadline_s=10, what="four requests that find no slot, and two that wait in vain")
        await server.kill_api()
        with pytest.raises(TransientError) as caught:
            await api.create(MAPS, {})
        assert not isinstance(caught.value, AmbiguousError)
        await server.start_api()
        await until_empty(api, MAPS)
