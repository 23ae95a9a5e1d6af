"""Reflections of a real server: pages, changes, silence, lost versions, restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from berth.formats.kubernetes.objects import ConfigMap, Listed, Pod, PodGroup
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.kube import reflector
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.reflector import Reflector
from tests.support.mirror import Mirror
from tests.support.waiting import until

DEADLINE_S = 20
OURS = {"labelSelector": "test=ours"}


def a_map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"test": "ours"}}}


@asynccontextmanager
async def connected(server: KubeServer, folder: Path, **constants: float) -> AsyncIterator[KubeApi]:
    """A connection, with other constants of the reflector while it is open."""
    config = KubeConfig(kubeconfig=server.write_kubeconfig(folder / "kubeconfig"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(reflector, name, value)
        async with await KubeApi.connect(config, clock=SystemClock()) as api:
            yield api


@asynccontextmanager
async def running(reflection: Reflector[Any]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflection.run())
        await asyncio.wait_for(reflection.synced.wait(), DEADLINE_S)
        yield
        task.cancel()


async def until_named(seen: Mirror[Any], *names: str) -> None:
    await until(lambda: seen.names == sorted(names), deadline_s=DEADLINE_S, what=f"just {names}")


async def test_pages_and_changes(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    names = [f"map-{index}" for index in range(10)]
    async with connected(kube_server, tmp_path, PAGE_SIZE=3) as api:
        for name in names:
            await api.create(path, a_map(name))
        seen: Mirror[ConfigMap] = Mirror()
        reflection = api.reflect(path, ConfigMap, seen, params=OURS)
        async with running(reflection):
            assert seen.log == [("LIST", " ".join(names))]
            await api.create(path, a_map("new"))
            await api.patch(f"{path}/map-0", {"data": {"a": "b"}})
            await api.delete(f"{path}/map-1")
            await until(lambda: len(seen.log) == 4, deadline_s=DEADLINE_S, what="three changes")
        assert seen.log[1:] == [("ADDED", "new"), ("MODIFIED", "map-0"), ("DELETED", "map-1")]
        assert seen.objects["map-0"].data == {"a": "b"}
        assert (reflection.lists, reflection.errors, reflection.skipped) == (1, 0, 0)


async def test_a_watch_that_ends_goes_on(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for times in ({"_WATCH_S": 1.0}, {"_IDLE_S": 0.2}):
        async with connected(kube_server, tmp_path, **times) as api:
            seen: Mirror[ConfigMap] = Mirror()
            reflection = api.reflect(path, ConfigMap, seen, params=OURS)
            async with running(reflection):
                await until(lambda: reflection.watches >= 3, deadline_s=DEADLINE_S, what="the third watch")  # noqa: B023  # awaited at once
                await api.create(path, a_map("one"))
                await until_named(seen, "one")
                await api.delete(f"{path}/one")
                await until_named(seen)
            assert (reflection.lists, reflection.errors) == (1, 0)


async def test_a_version_that_is_still_to_come_is_listed_again(
    kube_server: KubeServer, namespace: str, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with connected(kube_server, tmp_path, _IDLE_S=0.5) as api:
        await api.create(path, a_map("one"))
        seen: Mirror[ConfigMap] = Mirror()
        reflection = api.reflect(path, ConfigMap, seen, params=OURS)
        reflection._version = "1000000000"
        async with running(reflection):
            assert seen.log == [("LIST", "one")]
            await api.create(path, a_map("two"))
            await until_named(seen, "one", "two")


async def test_custom_resources_of_all_namespaces(kube_server: KubeServer, namespace: str, tmp_path: Path) -> None:
    group = "/apis/scheduling.volcano.sh/v1beta1"
    async with connected(kube_server, tmp_path) as api:
        seen: Mirror[PodGroup] = Mirror()
        async with running(api.reflect(f"{group}/podgroups", PodGroup, seen)):
            body = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "gang"},
                "spec": {"minMember": 4},
            }
            await api.create(f"{group}/namespaces/{namespace}/podgroups", body)
            await until_named(seen, "gang")
        assert seen.objects["gang"].spec.min_member == 4
        assert seen.objects["gang"].metadata.namespace == namespace


async def test_a_kind_that_comes_later_is_found(kube_server: KubeServer, tmp_path: Path) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "laters.berth.example"},
        "spec": {
            "group": "berth.example",
            "scope": "Cluster",
            "names": {"plural": "laters", "singular": "later", "kind": "Later"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    async with connected(kube_server, tmp_path, _PAUSE_MAX_S=0.2) as api:
        seen: Mirror[ConfigMap] = Mirror()
        reflection = api.reflect("/apis/berth.example/v1/laters", ConfigMap, seen)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflection.run())
            await until(lambda: reflection.errors >= 2, deadline_s=DEADLINE_S, what="two refusals")
            await api.create(definitions, definition)
            await asyncio.wait_for(reflection.synced.wait(), DEADLINE_S)
            task.cancel()
        await api.delete(f"{definitions}/laters.berth.example")


@pytest.mark.timeout(120)
async def test_a_server_that_is_killed_and_comes_again(tmp_path: Path) -> None:
    server = KubeServer(tmp_path / "server", controllers=(), start_deadline_s=40)
    async with server, connected(server, tmp_path, _PAUSE_MAX_S=1.0) as api:
        maps, pods = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
        await api.create("/api/v1/namespaces/default/configmaps", a_map("before"))
        seen_maps: Mirror[ConfigMap] = Mirror()
        seen_pods: Mirror[Pod] = Mirror()
        quiet, busy = api.reflect(maps, ConfigMap, seen_maps, params=OURS), api.reflect(pods, Pod, seen_pods)
        async with running(quiet), running(busy):
            for index in range(2):
                await server.restart_api()
                await api.create(maps, a_map(f"after-{index}"))
                pod = {
                    "metadata": {"name": f"pod-{index}"},
                    "spec": {"containers": [{"name": "main", "image": "none"}]},
                }
                await api.create(pods, pod)
                await until(lambda: f"after-{index}" in seen_maps.objects, deadline_s=DEADLINE_S, what="the map")  # noqa: B023  # awaited at once
                await until(lambda: f"pod-{index}" in seen_pods.objects, deadline_s=DEADLINE_S, what="the pod")  # noqa: B023  # awaited at once
            await api.delete(f"{maps}/before")
            await until_named(seen_maps, "after-0", "after-1")
        assert quiet.errors >= 2
        assert busy.errors >= 2


async def test_a_version_that_was_compacted_is_listed_again(tmp_path: Path) -> None:
    server = KubeServer(tmp_path / "server", controllers=(), start_deadline_s=40)
    path = "/api/v1/namespaces/default/configmaps"
    async with server, connected(server, tmp_path) as api, aiohttp.ClientSession() as http:
        await api.create(path, a_map("one"))
        now = (await api.get(path, Listed[ConfigMap])).metadata.resource_version
        async with http.post(f"{server.etcd_url}/v3/kv/compaction", json={"revision": now, "physical": True}) as answer:
            assert answer.status == 200, await answer.text()
        await server.restart_api()
        seen: Mirror[ConfigMap] = Mirror()
        reflection = api.reflect(path, ConfigMap, seen, params=OURS)
        reflection._version = "2"
        async with running(reflection):
            assert seen.log == [("LIST", "one")]
            assert (reflection.lists, reflection.errors) == (1, 1)
            await api.create(path, a_map("two"))
            await until_named(seen, "one", "two")
