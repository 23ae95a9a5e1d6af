"""``k8s/`` on a real server: it takes every object, makes the pods, and gives each service what it needs and no more.

Kinds that the server does not have in the version that a manifest names are checked against their schema, and printed.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pytest

from berth.lab.servers.kube_server import CONTROLLERS, KubeServer
from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kube_objects import apply, collection_of, in_order, lost, path_of, serves
from tests.support.kube_rights import SERVICES, Right, grant, may, rights_of
from tests.support.kustomize import Tree, render
from tests.support.pods import workloads
from tests.support.waiting import until_true

K8S: Final = Path(__file__).parents[2] / "k8s"
NAMESPACE: Final = "berth-system"
OVERLAYS: Final = ("dev", "prod")
SECRETS: Final[list[Tree]] = [
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": data}
    for name, data in {"berth-nats": {"route": "0"}, "berth-nats-tls": {"ca.crt": "0"}}.items()
]
START_S: Final = 50


class Selector(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str]


class BudgetSpec(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What budgets of policy/v1 have had since Kubernetes 1.21."""

    selector: Selector
    max_unavailable: int | str | None = None
    min_available: int | str | None = None


class ObjectMeta(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    namespace: str
    labels: dict[str, str] = {}


class Budget(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: BudgetSpec


SCHEMAS: Final = {("policy/v1", "PodDisruptionBudget"): Budget}
"""Of kinds that some server lacks."""


@dataclass(frozen=True)
class Applied:
    """A server with the objects of an overlay.

    Attributes:
        missing: Objects whose kind or version it does not have.
    """

    overlay: str
    server: KubeServer
    objects: list[Tree]
    missing: list[Tree]


@pytest.fixture(scope="module", params=OVERLAYS)
def applied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    """An overlay, applied to a server of its own that asks pods for their service accounts, as a real one does."""
    root = tmp_path_factory.mktemp("kube")
    controllers = (*CONTROLLERS, "serviceaccount-token")  # before 1.24, pods wait for the token that it makes
    server = KubeServer(root, controllers=controllers, service_account_admission=True, start_deadline_s=START_S)

    async def start() -> Applied:
        await server.start()
        objects = in_order(render(K8S / "overlays" / request.param))
        async with KubeApi(server) as api:
            if request.param == "prod":  # what the page for operators asks for beforehand
                await api.post("/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
                await apply(api, next(one for one in objects if one["kind"] == "Namespace"))
                for secret in SECRETS:
                    await api.post(collection_of(secret), secret)
            missing = [one for one in objects if not await serves(api, one)]
            for one in objects:
                if one not in missing:
                    await apply(api, one)
        return Applied(request.param, server, objects, missing)

    try:
        yield asyncio.run(start())
    finally:
        asyncio.run(server.stop())


@pytest.fixture
async def api(applied: Applied) -> AsyncIterator[KubeApi]:
    async with KubeApi(applied.server) as api:
        yield api


@pytest.mark.timeout(120)
async def test_every_object_is_taken_as_it_is(
    applied: Applied, api: KubeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    for one in applied.objects:
        if one not in applied.missing:
            assert lost(one, await api.get(path_of(one))) == [], path_of(one)
    for one in applied.missing:
        msgspec.convert(one, SCHEMAS[one["apiVersion"], one["kind"]])
        with capfd.disabled():
            print(  # noqa: T201
                f"\nk8s/overlays/{applied.overlay}: {applied.server.version} has no {one['kind']} {one['apiVersion']}:"
                f" {one['metadata']['name']} was checked against the schema"
            )


async def test_a_misspelt_field_is_refused(applied: Applied, api: KubeApi) -> None:
    one = workloads(applied.objects)["binder"]
    wrong = {**one, "spec": {**one["spec"], "replica": 1}}
    with pytest.raises(RefusedError, match="replica"):
        await apply(api, wrong)
    for budget in applied.missing:
        with pytest.raises(msgspec.ValidationError, match="maxUnavailabel"):
            msgspec.convert(
                {**budget, "spec": {**budget["spec"], "maxUnavailabel": 1}},
                SCHEMAS[budget["apiVersion"], budget["kind"]],
            )


async def test_applying_again_changes_nothing(applied: Applied, api: KubeApi) -> None:
    for one in applied.objects:
        if one not in applied.missing:
            before = (await api.get(path_of(one)))["metadata"].get("generation")
            assert (await apply(api, one))["metadata"].get("generation") == before


async def test_controllers_make_every_pod(applied: Applied, api: KubeApi, capfd: pytest.CaptureFixture[str]) -> None:
    # Also where the server refuses pods that are not confined as the namespace asks.
    wanted = {name: one["spec"]["replicas"] for name, one in workloads(applied.objects).items()}
    found: dict[str, list[Tree]] = {}

    async def all_are_there() -> bool:
        found.clear()
        for pod in await api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"):
            labels = pod["metadata"]["labels"]
            found.setdefault(labels.get("app.kubernetes.io/component", labels["app.kubernetes.io/name"]), []).append(
                pod
            )
        return {name: len(pods) for name, pods in found.items()} == wanted

    try:
        await until_true(all_are_there, deadline_s=30, what="all pods")
    except AssertionError as error:
        events = await api.items(f"/api/v1/namespaces/{NAMESPACE}/events")
        raise AssertionError(f"{error}: {[event['message'] for event in events]}") from error
    assert sorted(pod["metadata"]["name"] for pod in found["scorer"]) == ["scorer-0", "scorer-1"]
    assert sorted(pod["metadata"]["name"] for pod in found["nats"]) == ["nats-0", "nats-1", "nats-2"]
    for name, pods in found.items():
        for pod in pods:
            with_token = [one for one in pod["spec"]["volumes"] if "projected" in one or "-token-" in one["name"]]
            assert bool(with_token) == (name in SERVICES), name
    loose = {"metadata": {"name": "loose"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    if await api.status_of("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", loose) != 403:
        with capfd.disabled():
            print(f"\n{applied.server.version} does not enforce the security of pods")  # noqa: T201


Needs = Mapping[tuple[str, str], str]
"""Verbs by group and resource; a namespace, and a name in it, follow the resource: ``configmaps kube-system name``."""

EVENTS: Final = {("", "events"): "get create patch"}
NEEDED: Final[dict[str, Needs]] = {
    "inventory": {
        ("", "nodes"): "list watch",
        ("", "pods"): "list watch",
        ("", "configmaps kube-system"): "list watch",
        ("scheduling.volcano.sh", "podgroups"): "list watch patch",
        ("apps", "replicasets"): "get list watch",
        ("apps", "statefulsets"): "get list watch",
        ("batch", "jobs"): "get list watch",
        ("batch.volcano.sh", "jobs"): "get list watch",
        ("mindxdl.gitee.com", "ascendjobs"): "get list watch",
        ("jobset.x-k8s.io", "jobsets"): "get list watch",
        ("leaderworkerset.x-k8s.io", "leaderworkersets"): "get list watch",
        ("ray.io", "rayclusters"): "get list watch",
        ("kubeflow.org", "jaxjobs"): "get list watch",
        ("kubeflow.org", "mpijobs"): "get list watch",
        ("kubeflow.org", "mxjobs"): "get list watch",
        ("kubeflow.org", "paddlejobs"): "get list watch",
        ("kubeflow.org", "pytorchjobs"): "get list watch",
        ("kubeflow.org", "tfjobs"): "get list watch",
        ("kubeflow.org", "xgboostjobs"): "get list watch",
        ("scheduling.x-k8s.io", "podgroups"): "get list watch",
        ("scheduling.k8s.io", "podgroups"): "get list watch",
        ("scheduling.k8s.io", "podgroups/status"): "patch",
        ("scheduling.k8s.io", "priorityclasses"): "list watch",
        ("policy", "poddisruptionbudgets"): "list watch",
        ("scheduling.volcano.sh", "queues"): "list watch create",
        ("scheduling.k8s.io", "workloads"): "get list watch",
        ("", "namespaces"): "list watch",
        ("", "persistentvolumeclaims"): "list watch",
        ("", "persistentvolumes"): "list watch",
        ("storage.k8s.io", "csidrivers"): "list watch",
        ("storage.k8s.io", "csinodes"): "list watch",
        ("storage.k8s.io", "csistoragecapacities"): "list watch",
        ("storage.k8s.io", "storageclasses"): "list watch",
        **EVENTS,
    },
    "health": {
        ("", "configmaps kube-system"): "list watch",
        ("", "configmaps mindx-dl"): "list watch",
    },
    "binder": {
        ("", "nodes"): "get list watch",
        ("", "persistentvolumeclaims"): "get patch",
        ("", "persistentvolumes"): "get patch",
        ("", "pods"): "get list patch delete",
        ("", "pods/binding"): "create",
        ("", "pods/eviction"): "create",
        ("", "pods/status"): "patch",
        ("apps", "replicasets"): "get",
        ("apps", "statefulsets"): "get",
        ("batch.volcano.sh", "jobs"): "get",
        ("mindxdl.gitee.com", "ascendjobs"): "get",
        ("ray.io", "rayclusters"): "get",
        ("kubeflow.org", "paddlejobs"): "get",
        ("kubeflow.org", "pytorchjobs"): "get",
        ("scheduling.volcano.sh", "podgroups"): "get",
        **EVENTS,
    },
    "summary": {
        ("", "nodes"): "list watch",
        ("", "pods"): "list watch",
        ("scheduling.volcano.sh", "podgroups"): "list watch patch",
        ("scheduling.volcano.sh", "queues"): "list watch",
        ("scheduling.volcano.sh", "queues/status"): "patch",
        ("coordination.k8s.io", "leases * volcano"): "get",
        ("", "configmaps"): "list watch create update delete",
    },
}
REFUSED: Final = [
    Right("get", "", "secrets", NAMESPACE, "berth-nats"),
    Right("get", "", "secrets", NAMESPACE, "berth-nats-tls"),
    Right("list", "", "secrets"),
    Right("create", "", "pods", "default"),
    Right("create", "", "pods/exec", "default", "any"),
    Right("delete", "", "nodes", "", "n1"),
    Right("patch", "", "nodes", "", "n1"),
    Right("patch", "", "nodes/status", "", "n1"),
    Right("create", "", "serviceaccounts/token", NAMESPACE, "binder"),
    Right("delete", "scheduling.volcano.sh", "podgroups", "default", "g"),
    Right("create", "batch", "jobs", "default"),
    Right("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    Right("impersonate", "", "users", "", "admin"),
    Right("delete", "apps", "deployments", NAMESPACE, "binder"),
]
REFUSED_OF: Final = {
    "inventory": [
        Right("list", "", "configmaps", "mindx-dl"),
        Right("list", "", "configmaps", "default", "basic-tor-node-cm"),
        Right("get", "", "configmaps", "kube-system", "basic-tor-node-cm"),
        Right("update", "", "configmaps", "kube-system", "mindx-dl-deviceinfo-n1"),
        Right("patch", "", "pods", "default", "p"),
        Right("create", "", "pods/binding", "default", "p"),
        Right("create", "", "pods/eviction", "default", "p"),
        Right("list", "apps", "deployments", "default"),
        Right("patch", "", "persistentvolumeclaims", "default", "c"),
        Right("patch", "", "persistentvolumes", "", "v"),
        Right("get", "storage.k8s.io", "volumeattachments", "", "a"),
    ],
    "health": [
        Right("list", "", "configmaps", "default"),
        Right("update", "", "configmaps", "kube-system", "mindx-dl-deviceinfo-n1"),
        Right("delete", "", "configmaps", "mindx-dl", "cluster-info-node-cm"),
        Right("list", "", "nodes"),
        Right("list", "", "pods"),
        Right("create", "", "pods/eviction", "default", "p"),
        Right("create", "", "events", "default"),
    ],
    "binder": [
        Right("list", "", "configmaps", "default"),
        Right("patch", "scheduling.volcano.sh", "podgroups", "default", "g"),
        Right("update", "", "pods", "default", "p"),
        Right("list", "", "persistentvolumeclaims", "default"),
        Right("delete", "", "persistentvolumeclaims", "default", "c"),
        Right("delete", "", "persistentvolumes", "", "v"),
    ],
    "summary": [
        Right("patch", "", "pods", "default", "p"),
        Right("delete", "", "pods", "default", "p"),
        Right("create", "", "pods/binding", "default", "p"),
        Right("create", "", "pods/eviction", "default", "p"),
        Right("create", "", "events", "default"),
        Right("patch", "scheduling.volcano.sh", "podgroups/status", "default", "g"),
        Right("patch", "scheduling.volcano.sh", "queues", "", "q"),
        Right("get", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
        Right("update", "coordination.k8s.io", "leases", "volcano-system", "volcano"),
    ],
}


def needed(service: str) -> list[Right]:
    rights = []
    for (group, words), verbs in NEEDED[service].items():
        resource, namespace, name = (*words.split(), "", "")[:3]
        rights += [Right(verb, group, resource, namespace.strip("*"), name) for verb in verbs.split()]
    return rights


@pytest.mark.parametrize("service", sorted(NEEDED))
async def test_a_service_may_do_what_it_needs_and_nothing_else(applied: Applied, api: KubeApi, service: str) -> None:
    user = f"system:serviceaccount:{NAMESPACE}:{service}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
    assert sorted(rights_of(applied.objects, service)) == sorted(needed(service))
    assert [right for right in needed(service) if not await may(api, user, right, groups)] == []
    assert [right for right in [*REFUSED, *REFUSED_OF[service]] if await may(api, user, right, groups)] == []


@pytest.mark.parametrize("account", ["default", "dispatcher", "scorer"])
async def test_others_may_do_nothing(api: KubeApi, account: str) -> None:
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
    everything = {right for service in NEEDED for right in needed(service)} | set(REFUSED)
    assert [right for right in sorted(everything) if await may(api, user, right, groups)] == []


async def statuses(user: KubeApi, *asked: tuple[str, str]) -> list[int]:
    return [await user.status_of(method, at) for method, at in asked]


async def test_rights_are_granted_to_users_of_the_tests(kube_server: KubeServer, kube_api: KubeApi) -> None:
    tor = "/api/v1/namespaces/kube-system/configmaps"
    async with KubeApi(kube_server, user="inventory") as inventory, KubeApi(kube_server, user="health") as health:
        asked = [
            ("GET", "/api/v1/pods"),
            ("GET", f"{tor}?fieldSelector=metadata.name%3Dbasic-tor-node-cm"),
            ("GET", "/api/v1/namespaces/mindx-dl/configmaps"),
        ]
        assert await statuses(inventory, *asked) == [403, 403, 403]
        await grant(kube_api, "inventory", "inventory")
        await grant(kube_api, "inventory", "inventory")
        assert await statuses(inventory, *asked) == [200, 200, 403]
        maps = [("GET", f"/api/v1/namespaces/{name}/configmaps") for name in ("kube-system", "mindx-dl", "default")]
        assert await statuses(health, *maps) == [403, 403, 403]
        await grant(kube_api, "health", "health")
        assert await statuses(health, *maps, asked[0]) == [200, 200, 403, 403]


@pytest.mark.parametrize("service", SERVICES)
async def test_all_rights_of_a_service_are_granted(kube_api: KubeApi, service: str) -> None:
    await grant(kube_api, service, service)
    rights = rights_of(render(K8S / "overlays" / "dev"), service)
    assert len(rights) > 3
    assert [right for right in rights if not await may(kube_api, service, right)] == []
    assert not await may(kube_api, service, Right("list", "", "secrets"))
    assert not await may(kube_api, "stranger", rights[0])
