"""A real API server and the simulated one do the same in trouble; see :mod:`tests.contract.kube_troubles`."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from random import Random

import aiohttp
import pytest
from msgspec.structs import replace

from berth.formats.kubernetes.objects import ConfigMap, Listed
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import RefusedError
from tests.chaos.loopback import ProxiedTrial, proxy_to
from tests.chaos.proxy import Proxy
from tests.contract.kube_troubles import (
    DEADLINE_S,
    TROUBLES,
    Trial,
    a_lost_answer,
    a_pod,
    a_reflection_through_all_of_it,
    maps,
    pods,
    what_is_held_lands_late,
)
from tests.sim.clock import SimClock
from tests.sim.kube import SimApi, SimKube
from tests.sim.kube import Weather as SimWeather
from tests.sim.loop import SimLoop
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(120)
Trouble = Callable[[Trial], Awaitable[None]]
_UNANSWERED = (a_lost_answer, what_is_held_lands_late)
"""Troubles in which the client in trouble waits in vain for an answer."""
_TIMEOUT_S = 5.0
"""How long it does so. What is answered there must be within this time, too; in other troubles it has the usual one."""
_ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmission"


class RealTrial(ProxiedTrial):
    """A real server; the client in trouble reaches it through a proxy."""

    def __init__(self, server: KubeServer, proxy: Proxy, api: KubeApi, other: KubeApi, namespace: str) -> None:
        super().__init__(proxy)
        self.api: KubeApi = api
        self.other: KubeApi = other
        self.namespace = namespace
        self._server = server

    async def expire(self) -> None:
        """See Trial: the server starts again, since it has a memory of its own beside that of etcd."""
        now = (await self.other.get(maps(self), Listed[ConfigMap])).metadata.resource_version
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self._server.etcd_url}/v3/kv/compaction", json={"revision": now, "physical": True}) as answer,
        ):
            assert answer.status == 200, await answer.text()
        await self._server.restart_api()

    async def guard(self, pod: str) -> None:
        """See Trial."""
        assert pod
        budget = {
            "metadata": {"name": "all"},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"test": "ours"}}},
        }
        await self.other.create(self._budgets, budget)

    async def let_go(self) -> None:
        """See Trial."""
        await self.other.delete(f"{self._budgets}/all")

    async def deny(self) -> None:
        """See Trial: by a policy; the server needs a moment to read it."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        named = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}
        policy = {
            "matchConstraints": {"resourceRules": [rule], **named},
            "validations": [{"expression": "false", "message": "no pods today", "reason": "Forbidden"}],
        }
        name = {"name": f"none-{self.namespace}"}
        await self.other.create(f"{_ADMISSION}policies", {"metadata": name, "spec": policy})
        bound = {"policyName": name["name"], "validationActions": ["Deny"]}
        await self.other.create(f"{_ADMISSION}policybindings", {"metadata": name, "spec": bound})

        async def denies() -> bool:
            path = pods(self)
            try:
                await self.other.create(path, a_pod("probe"))
            except RefusedError as error:
                return error.status == HTTPStatus.FORBIDDEN
            await self.other.delete(f"{path}/probe", grace_s=0)
            return False

        await until_true(denies, deadline_s=DEADLINE_S, what="the policy")

    async def admit(self) -> None:
        """See Trial."""
        for kind in ("policybindings", "policies"):
            await self.other.delete(f"{_ADMISSION}{kind}/none-{self.namespace}")

    @property
    def _budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"


class SimTrial:
    """A simulated server and two of its clients."""

    namespace = "ns"

    def __init__(self, loop: SimLoop, seed: int) -> None:
        chance = Random(seed)  # noqa: S311  # a simulation
        self.server = SimKube(loop, SimClock(loop), chance)
        self.api, self.other = (SimApi(self.server, loop.main, chance, delay_s=0.02) for _ in range(2))
        self._loop = loop

    async def lose_answers(self) -> None:
        """See Trial."""
        self.api.lose_replies = 1

    async def hold(self) -> None:
        """See Trial."""
        self.api.outgoing.held_until_s = self._loop.now_s + 20.0

    async def cut(self) -> None:
        """See Trial."""
        self.api.cut(5.0)

    async def heal(self) -> None:
        """See Trial: it ends by itself."""

    async def expire(self) -> None:
        """See Trial."""
        self.api.expire_watches()

    async def guard(self, pod: str) -> None:
        """See Trial."""
        assert pod
        self.server.weather = SimWeather(hanging=1.0)

    async def let_go(self) -> None:
        """See Trial."""
        self.server.weather = SimWeather()

    async def deny(self) -> None:
        """See Trial."""
        self.server.weather = SimWeather(denying=1.0)

    async def admit(self) -> None:
        """See Trial."""
        self.server.weather = SimWeather()


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
async def test_a_real_server_in_trouble(
    trouble: Trouble, request: pytest.FixtureRequest, namespace: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        if trouble is a_reflection_through_all_of_it:  # it starts the server again
            server, used = KubeServer(tmp_path / "server", controllers=(), start_deadline_s=40), "default"
            await stack.enter_async_context(server)
        else:
            server, used = request.getfixturevalue("kube_server"), namespace
        proxy = proxy_to(server.url)
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        direct = server.write_kubeconfig(tmp_path / "kubeconfig")
        config = json.loads(direct.read_text("utf-8"))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        through = tmp_path / "through"
        through.write_text(json.dumps(config), "utf-8")
        usual = KubeConfig()
        troubled = replace(usual, timeout_s=_TIMEOUT_S) if trouble in _UNANSWERED else usual
        api, other = [
            await stack.enter_async_context(
                await KubeApi.connect(replace(settings, kubeconfig=path), clock=SystemClock())
            )
            for settings, path in ((troubled, through), (usual, direct))
        ]
        await trouble(RealTrial(server, proxy, api, other, used))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_a_simulated_server_in_trouble(trouble: Trouble, seed: int) -> None:
    loop = SimLoop(seed)
    try:
        loop.run_until_complete(trouble(SimTrial(loop, seed)))
    finally:
        loop.close()
    assert loop.errors == []
