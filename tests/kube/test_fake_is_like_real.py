"""The server in memory answers as a real one: each test runs on both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from berth.formats.kubernetes.objects import ConfigMap, Listed, Pod
from berth.formats.kubernetes.paths import sub_path
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Api, Reflection, RefusedError
from tests.support.fake_kube import FakeKube
from tests.support.kube_rules import Tree
from tests.support.mirror import Mirror
from tests.support.waiting import until

DEADLINE_S = 10


class World(NamedTuple):
    """A server and a namespace in it."""

    api: Api
    namespace: str

    def path(self, plural: str, name: str = "", sub: str = "") -> str:
        return "/".join(filter(None, (f"/api/v1/namespaces/{self.namespace}/{plural}", name, sub)))


@pytest.fixture(params=["fake", "real"])
async def world(
    request: pytest.FixtureRequest, kube_server: KubeServer, namespace: str, tmp_path: Path
) -> AsyncIterator[World]:
    if request.param == "fake":
        yield World(FakeKube(), namespace)
        return
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig"))
    async with await KubeApi.connect(config, clock=SystemClock()) as api:
        yield World(api, namespace)


def a_pod(name: str, **metadata: object) -> dict[str, object]:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": "berth", "containers": [{"name": "main", "image": "none"}]},
    }


def a_binding(name: str, node: str = "node-1", **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


def said(answer: bytes) -> Tree:
    tree: Tree = msgspec.json.decode(answer)
    return tree


@asynccontextmanager
async def running(reflection: Reflection) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reflection.run())
        await asyncio.wait_for(reflection.synced.wait(), DEADLINE_S)
        yield
        task.cancel()


async def names(world: World, plural: str, **params: str) -> list[str]:
    found = await world.api.get(world.path(plural), Listed[Pod], params=params)
    assert int(found.metadata.resource_version) > 0
    return [item.metadata.name for item in found.items or ()]


async def test_objects_are_made_read_and_listed_by_selectors(world: World) -> None:
    for name, app in (("b", "x"), ("a", "x"), ("c", "y")):
        await world.api.create(world.path("pods"), a_pod(name, labels={"app": app}))
    await world.api.create(world.path("pods", "c", "binding"), a_binding("c"))
    pod = await world.api.get(world.path("pods", "a"), Pod)
    assert (pod.metadata.name, pod.metadata.namespace, pod.status.phase) == ("a", world.namespace, "Pending")
    assert pod.metadata.uid
    assert pod.metadata.creation_timestamp
    assert await names(world, "pods") == ["a", "b", "c"]
    for labels, found in {
        "app=x": "ab",
        "app!=x": "c",
        "app in (x, y),app": "abc",
        "!app": "",
        "app notin (x)": "c",
    }.items():
        assert await names(world, "pods", labelSelector=labels) == list(found), labels
    for fields, found in {
        "metadata.name=b": "b",
        "spec.nodeName=": "ab",
        "spec.nodeName!=": "c",
        "spec.schedulerName=berth,status.phase!=Running": "abc",
        "spec.schedulerName=other": "",
    }.items():
        assert await names(world, "pods", fieldSelector=fields) == list(found), fields
    with pytest.raises(RefusedError) as caught:
        await names(world, "pods", fieldSelector="spec.colour=red")
    assert caught.value.status == 400


async def test_a_list_comes_in_pages(world: World) -> None:
    for name in "abc":
        await world.api.create(world.path("configmaps"), {"metadata": {"name": name, "labels": {"page": "x"}}})
    params = {"labelSelector": "page=x", "limit": "2"}
    first = await world.api.get(world.path("configmaps"), Listed[ConfigMap], params=params)
    assert [item.metadata.name for item in first.items or ()] == ["a", "b"]
    more = {**params, "continue": first.metadata.continue_}
    second = await world.api.get(world.path("configmaps"), Listed[ConfigMap], params=more)
    assert ([item.metadata.name for item in second.items or ()], second.metadata.continue_) == (["c"], "")


async def test_a_name_with_steps_in_it_is_no_object(world: World) -> None:
    await world.api.create(world.path("configmaps"), {"metadata": {"name": "one"}})
    for name in ("../configmaps/one", ".", "one?limit=1", "one#a", "o%6ee", "one/", "\u00e9"):
        for path in (world.path("configmaps", name), sub_path(world.path("configmaps"), name)):
            with pytest.raises(RefusedError) as caught:
                await world.api.get(path, ConfigMap)
            assert (caught.value.status, caught.value.cause) == (404, "NotFound"), path
            await world.api.delete(path)
    with pytest.raises(RefusedError) as caught:
        await world.api.get(sub_path(world.path("configmaps"), ""), ConfigMap)
    assert caught.value.is_absent
    assert (await world.api.get(world.path("configmaps", "one"), ConfigMap)).metadata.name == "one"


async def test_what_is_there_is_not_made_again(world: World) -> None:
    await world.api.create(world.path("configmaps"), {"metadata": {"name": "one"}})
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("configmaps"), {"metadata": {"name": "one"}})
    assert (caught.value.status, caught.value.cause) == (409, "AlreadyExists")
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("configmaps"), {"metadata": {}})
    assert (caught.value.status, caught.value.cause) == (422, "Invalid")
    first = said(await world.api.create(world.path("configmaps"), {"metadata": {"generateName": "many-"}}))
    second = said(await world.api.create(world.path("configmaps"), {"metadata": {"generateName": "many-"}}))
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_an_old_version_is_not_written_over_a_new_one(world: World) -> None:
    path = world.path("configmaps", "one")
    made = said(await world.api.create(world.path("configmaps"), {"metadata": {"name": "one"}, "data": {"a": "1"}}))
    changed = said(await world.api.update(path, {**made, "data": {"a": "2"}}))
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(RefusedError) as caught:
        await world.api.update(path, {**made, "data": {"a": "3"}})
    assert (caught.value.status, caught.value.cause) == (409, "Conflict")
    assert caught.value.is_conflict
    stale = {"resourceVersion": made["metadata"]["resourceVersion"]}
    with pytest.raises(RefusedError) as caught:
        await world.api.patch(path, {"metadata": stale, "data": {"a": "3"}})
    assert (caught.value.status, caught.value.cause) == (409, "Conflict")
    await world.api.update(path, {"metadata": {"name": "one"}, "data": {"a": "4"}})
    assert (await world.api.get(path, ConfigMap)).data == {"a": "4"}
    with pytest.raises(RefusedError) as caught:
        await world.api.update(world.path("configmaps", "two"), {"metadata": {"name": "two"}})
    assert caught.value.is_absent


async def test_a_merge_patch_adds_replaces_and_removes(world: World) -> None:
    path = world.path("configmaps", "one")
    made = said(
        await world.api.create(world.path("configmaps"), {"metadata": {"name": "one"}, "data": {"a": "1", "b": "2"}})
    )
    uid = made["metadata"]["uid"]
    patched = said(
        await world.api.patch(path, {"metadata": {"uid": uid, "labels": {"x": "y"}}, "data": {"a": None, "c": "3"}})
    )
    assert patched["data"] == {"b": "2", "c": "3"}
    assert patched["metadata"]["labels"] == {"x": "y"}
    again = said(await world.api.patch(path, {"data": {"a": None, "c": "3"}}))
    assert again["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
    with pytest.raises(RefusedError) as caught:
        await world.api.patch(path, {"metadata": {"uid": "another"}, "data": {"c": "4"}})
    assert caught.value.status in {409, 422}
    with pytest.raises(RefusedError) as caught:
        await world.api.patch(world.path("configmaps", "two"), {"data": {"c": "4"}})
    assert caught.value.is_absent


async def test_a_strategic_patch_merges_conditions_by_type(world: World) -> None:
    await world.api.create(world.path("pods"), a_pod("one"))
    path = world.path("pods", "one", "status")
    for kind, status in (("PodScheduled", "False"), ("Other", "True"), ("PodScheduled", "True")):
        await world.api.patch(path, {"status": {"conditions": [{"type": kind, "status": status}]}}, how="strategic")
    found = (await world.api.get(world.path("pods", "one"), Pod)).status.conditions or []
    assert sorted((item.type, item.status) for item in found) == [("Other", "True"), ("PodScheduled", "True")]
    await world.api.patch(path, {"status": {"conditions": [{"type": "Last", "status": "True"}]}})
    found = (await world.api.get(world.path("pods", "one"), Pod)).status.conditions or []
    assert [item.type for item in found] == ["Last"]


async def test_the_status_is_changed_through_its_own_path_only(world: World) -> None:
    await world.api.create(world.path("pods"), a_pod("one"))
    await world.api.patch(
        world.path("pods", "one"), {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}}
    )
    pod = await world.api.get(world.path("pods", "one"), Pod)
    assert (pod.status.phase, pod.metadata.labels) == ("Pending", {"a": "b"})
    await world.api.patch(world.path("pods", "one", "status"), {"status": {"phase": "Running"}})
    assert (await world.api.get(world.path("pods", "one"), Pod)).status.phase == "Running"


async def test_apply_makes_what_is_not_there_and_merges_what_is(world: World) -> None:
    path = world.path("configmaps", "one")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}
    await world.api.patch(path, body, how="apply", field_manager="first")
    await world.api.patch(path, {**body, "data": {"b": "2"}}, how="apply", field_manager="second")
    assert (await world.api.get(path, ConfigMap)).data == {"a": "1", "b": "2"}
    with pytest.raises(ValueError, match="field manager"):
        await world.api.patch(path, body, how="apply")


async def test_only_the_object_that_is_meant_is_deleted(world: World) -> None:
    path = world.path("configmaps", "one")
    made = said(await world.api.create(world.path("configmaps"), {"metadata": {"name": "one"}}))
    with pytest.raises(RefusedError) as caught:
        await world.api.delete(path, uid="another")
    assert (caught.value.status, caught.value.cause) == (409, "Conflict")
    await world.api.delete(path, uid=made["metadata"]["uid"])
    await world.api.delete(path)
    with pytest.raises(RefusedError) as caught:
        await world.api.get(path, ConfigMap)
    assert (caught.value.status, caught.value.cause) == (404, "NotFound")


async def test_a_pod_is_bound_once(world: World) -> None:
    await world.api.create(world.path("pods"), a_pod("one", annotations={"kept": "1", "changed": "1"}))
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("pods", "one", "binding"), a_binding("two"))
    assert caught.value.status == 400
    uid = (await world.api.get(world.path("pods", "one"), Pod)).metadata.uid
    await world.api.create(
        world.path("pods", "one", "binding"),
        a_binding("one", uid=uid, annotations={"changed": "2", "new": "3"}),
    )
    pod = await world.api.get(world.path("pods", "one"), Pod)
    assert pod.spec.node_name == "node-1"
    assert pod.metadata.annotations == {"kept": "1", "changed": "2", "new": "3"}
    assert [(item.type, item.status) for item in pod.status.conditions or ()] == [("PodScheduled", "True")]
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("pods", "one", "binding"), a_binding("one"))
    assert (caught.value.status, caught.value.cause) == (409, "Conflict")
    assert "already assigned to node" in str(caught.value)
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("pods", "two", "binding"), a_binding("two"))
    assert caught.value.is_absent


async def test_a_pod_on_a_node_ends_in_its_own_time(world: World) -> None:
    for name in ("free", "bound", "done"):
        await world.api.create(world.path("pods"), a_pod(name))
    for name in ("bound", "done"):
        await world.api.create(world.path("pods", name, "binding"), a_binding(name))
    await world.api.patch(world.path("pods", "done", "status"), {"status": {"phase": "Succeeded"}})
    for name in ("free", "bound", "done"):
        await world.api.delete(world.path("pods", name))
    assert await names(world, "pods") == ["bound"]
    assert (await world.api.get(world.path("pods", "bound"), Pod)).metadata.deletion_timestamp
    await world.api.delete(world.path("pods", "bound"), grace_s=0)
    assert await names(world, "pods") == []


async def test_an_evicted_pod_goes_and_a_terminating_one_is_not_bound(world: World) -> None:
    for name in ("free", "bound"):
        await world.api.create(world.path("pods"), a_pod(name))
    await world.api.create(world.path("pods", "bound", "binding"), a_binding("bound"))
    for name in ("free", "bound"):
        await world.api.create(world.path("pods", name, "eviction"), {"metadata": {"name": name}})
    assert await names(world, "pods") == ["bound"]
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("pods", "bound", "binding"), a_binding("bound"))
    assert caught.value.is_conflict
    assert "is being deleted" in str(caught.value)
    with pytest.raises(RefusedError) as caught:
        await world.api.create(world.path("pods", "free", "eviction"), {"metadata": {"name": "free"}})
    assert caught.value.is_absent


async def test_a_reflection_shows_what_a_selector_selects(world: World) -> None:
    for name, app in (("a", "x"), ("b", "y")):
        await world.api.create(world.path("pods"), a_pod(name, labels={"app": app}))
    seen: Mirror[Pod] = Mirror()
    reflection = world.api.reflect(world.path("pods"), Pod, seen, params={"labelSelector": "app=x"})
    async with running(reflection):
        await world.api.create(world.path("pods"), a_pod("c", labels={"app": "x"}))
        await world.api.patch(world.path("pods", "b"), {"metadata": {"labels": {"app": "x"}}})
        await world.api.patch(world.path("pods", "a"), {"metadata": {"annotations": {"k": "v"}}})
        await world.api.patch(world.path("pods", "a"), {"metadata": {"labels": {"app": "y"}}})
        await world.api.delete(world.path("pods", "c"))
        await until(lambda: ("DELETED", "c") in seen.log, deadline_s=DEADLINE_S, what="all changes")
    ending = ("MODIFIED", "c")  # some servers mark a pod before they take it away
    assert [item for item in seen.log if item != ending] == [
        ("LIST", "a"), ("ADDED", "c"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a"), ("DELETED", "c"),
    ]  # fmt: skip
    assert seen.names == ["b"]
    assert (reflection.lists, reflection.events, reflection.errors) == (1, len(seen.log) - 1, 0)


async def test_a_custom_resource_takes_no_strategic_patch(world: World) -> None:
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{world.namespace}/podgroups"
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "one"}, "spec": {}}
    await world.api.create(path, body)
    with pytest.raises(RefusedError) as caught:
        await world.api.patch(f"{path}/one", {"spec": {"minMember": 2}}, how="strategic")
    assert caught.value.status == 415
    patched = said(await world.api.patch(f"{path}/one", {"spec": {"minMember": 2}, "status": {"phase": "Inqueue"}}))
    assert (patched["spec"]["minMember"], patched["status"]["phase"]) == (2, "Inqueue")


async def test_events_are_made_and_kinds_are_known(world: World) -> None:
    about = {"kind": "Pod", "name": "one", "namespace": world.namespace}
    await world.api.create(
        world.path("events"),
        {"metadata": {"generateName": "one."}, "involvedObject": about, "reason": "Waits", "type": "Normal"},
    )
    assert len(await names(world, "events", fieldSelector="involvedObject.name=one,reason=Waits")) == 1
    assert await world.api.serves("v1", "pods")
    assert (await world.api.version()).startswith("v1.")


async def test_a_kind_that_is_not_served(kube_server: KubeServer, tmp_path: Path) -> None:
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig"))
    async with await KubeApi.connect(config, clock=SystemClock()) as real:
        for api in (real, FakeKube(unserved={"strange"})):
            assert not await api.serves("berth.example/v1", "strange")
            with pytest.raises(RefusedError) as caught:
                await api.get("/apis/berth.example/v1/strange", Listed[Pod])
            assert (caught.value.status, caught.value.cause) == (404, "")
            seen: Mirror[Pod] = Mirror()
            reflection = api.reflect("/apis/berth.example/v1/strange", Pod, seen, is_optional=True)
            with pytest.raises(RefusedError) as caught:
                await asyncio.wait_for(reflection.run(), DEADLINE_S)
            assert (caught.value.status, reflection.synced.is_set()) == (404, False)
