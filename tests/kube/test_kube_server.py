"""The server of the tests: it serves, asks for rights, keeps its data, and its controllers work."""

import json
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from berth.lab.servers.kube_assets import kube_assets
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.errors import FatalError
from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kube_sweep import Sweep
from tests.support.waiting import until, until_true

POD: dict[str, Any] = {
    "metadata": {"name": "one"},
    "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
}


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_it_is_the_version_that_it_says(kube_server: KubeServer, kube_api: KubeApi) -> None:
    found = await kube_api.get("/version")
    assert found["gitVersion"] == kube_server.version
    assert found["minor"].rstrip("+") == str(kube_server.minor)
    assert sorted(kube_server.pids) == ["etcd", "kube-apiserver", "kube-controller-manager"]


async def test_a_kubeconfig_leads_to_it(kube_server: KubeServer, tmp_path: Path) -> None:
    path = kube_server.write_kubeconfig(tmp_path / "config", user="stranger")
    config = json.loads(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert path.stat().st_mode & 0o077 == 0
    assert user["token"] == kube_server.token("stranger") != kube_server.admin_token
    request = urllib.request.Request(f"{cluster['server']}/api", headers={"Authorization": f"Bearer {user['token']}"})  # noqa: S310  # https
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=cluster["certificate-authority"])),
    )
    with opener.open(request, timeout=10) as answer:
        assert json.load(answer)["versions"] == ["v1"]


async def test_an_unknown_user_is_named(kube_server: KubeServer) -> None:
    with pytest.raises(FatalError, match=r"user nobody is unknown; known are admin, berth, .*, stranger"):
        kube_server.token("nobody")


async def test_without_a_token_it_is_closed(kube_server: KubeServer) -> None:
    context = kube_server.ssl_context()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(f"{kube_server.url}/api/v1/nodes", timeout=10)
    refused.value.close()
    assert refused.value.code == 403


async def test_an_ordinary_user_needs_a_role(kube_server: KubeServer, kube_api: KubeApi, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with KubeApi(kube_server, user="stranger") as stranger:
        assert await stranger.status_of("GET", pods) == 403
        await kube_api.post(
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
            {
                "metadata": {"name": "viewers"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stranger"}],
            },
        )

        async def may_read() -> bool:
            return await stranger.status_of("GET", pods) == 200

        await until_true(may_read, deadline_s=10, what="the role is effective")
        assert await stranger.status_of("POST", pods, POD) == 403


async def test_a_new_node_has_no_taint_and_takes_a_pod(kube_api: KubeApi, namespace: str) -> None:
    node = await kube_api.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert not node["spec"].get("taints")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await kube_api.post(pods, POD)
    await kube_api.post(f"{pods}/one/binding", {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n1"}})
    assert (await kube_api.get(f"{pods}/one"))["spec"]["nodeName"] == "n1"


async def test_controllers_make_the_pods_of_a_job_and_end_it(kube_api: KubeApi, namespace: str) -> None:
    template = {"spec": {**POD["spec"], "restartPolicy": "Never"}}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    await kube_api.post(
        jobs, {"metadata": {"name": "j"}, "spec": {"parallelism": 3, "completions": 3, "template": template}}
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def there_are_three() -> bool:
        return len(await kube_api.items(pods)) == 3

    await until_true(there_are_three, deadline_s=20, what="the job has its pods")
    for pod in await kube_api.items(pods):
        await kube_api.patch(f"{pods}/{pod['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})

    async def it_is_complete() -> bool:
        status = (await kube_api.get(f"{jobs}/j"))["status"]
        return bool(status.get("succeeded") == 3)

    await until_true(it_is_complete, deadline_s=20, what="the job is complete")


async def test_a_deployment_gets_its_pods(kube_api: KubeApi, namespace: str) -> None:
    labels = {"app": "a"}
    await kube_api.post(
        f"/apis/apps/v1/namespaces/{namespace}/deployments",
        {
            "metadata": {"name": "d"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": POD["spec"]},
            },
        },
    )

    async def there_are_two() -> bool:
        return len(await kube_api.items(f"/api/v1/namespaces/{namespace}/pods")) == 2

    await until_true(there_are_two, deadline_s=20, what="the deployment has its pods")


async def test_all_custom_resources_are_served(kube_api: KubeApi, namespace: str) -> None:
    for path, kind in [
        ("scheduling.volcano.sh/v1beta1", "PodGroup"),
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("mindxdl.gitee.com/v1", "AscendJob"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    ]:
        one = {"apiVersion": path, "kind": kind, "metadata": {"name": "one"}, "spec": {"of": {"any": ["shape"]}}}
        made = await kube_api.post(f"/apis/{path}/namespaces/{namespace}/{kind.lower()}s", one)
        assert made["spec"] == one["spec"], kind


async def test_a_volcano_pod_group_has_no_status_of_its_own(kube_api: KubeApi, namespace: str) -> None:
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 2},
    }
    await kube_api.post(groups, group)
    assert await kube_api.status_of("GET", f"{groups}/g/status") == 404
    await kube_api.patch(f"{groups}/g", {"status": {"phase": "Inqueue"}})
    assert (await kube_api.get(f"{groups}/g"))["status"] == {"phase": "Inqueue"}


async def test_the_sweep_leaves_nothing(kube_api: KubeApi, namespace: str) -> None:
    custom = ("/apis/scheduling.volcano.sh/v1beta1/podgroups",)
    sweep = Sweep(kube_api, custom=custom, kept=await Sweep(kube_api, custom=custom).survey())
    await kube_api.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    held = {"name": "held", "finalizers": ["berth.example/held"]}
    for collection, one in [
        (f"/api/v1/namespaces/{namespace}/pods", {**POD, "metadata": held}),
        ("/api/v1/namespaces/mindx-dl/configmaps", {"metadata": held}),
        ("/api/v1/namespaces/kube-system/configmaps", {"metadata": held}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": held, "rules": []}),
        (
            f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups",
            {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": held},
        ),
    ]:
        await kube_api.post(collection, one)
    before = await sweep.survey()
    await sweep.run()
    # the namespaces of earlier tests may end meanwhile, and take their own maps with them
    gone = {path for path in before - await sweep.survey() if not path.endswith("/kube-root-ca.crt")}
    assert {path.rpartition("/")[2] for path in gone} == {"held"}
    assert len(gone) == 4
    assert await kube_api.items("/api/v1/pods") == []
    assert await kube_api.items("/api/v1/nodes") == []


async def test_a_restart_keeps_the_data(tmp_path: Path) -> None:
    async with KubeServer(tmp_path / "own", controllers=()) as server, KubeApi(server) as api:
        await api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}, "data": {"a": "b"}})
        first = server.pids
        await server.restart_api()
        assert server.pids["kube-apiserver"] != first["kube-apiserver"]
        assert server.pids["etcd"] == first["etcd"]
        assert (await api.get("/api/v1/namespaces/default/configmaps/kept"))["data"] == {"a": "b"}
        await server.kill_api()
        assert sorted(server.pids) == ["etcd"]
        await server.stop()
        await server.start()
        assert (await api.get("/api/v1/namespaces/default/configmaps/kept"))["data"] == {"a": "b"}
    assert server.pids == {}


async def test_service_accounts_are_asked_for_when_wanted(tmp_path: Path) -> None:
    server = KubeServer(tmp_path / "own", controllers=("serviceaccount",), service_account_admission=True)
    async with server, KubeApi(server) as api:
        account = "/api/v1/namespaces/default/serviceaccounts/default"

        async def there_is_one() -> bool:
            return await api.status_of("GET", account) == 200

        await until_true(there_is_one, deadline_s=20, what="the default service account")
        await api.post(
            "/api/v1/namespaces/default/pods", {**POD, "spec": {**POD["spec"], "automountServiceAccountToken": False}}
        )
        assert (await api.get("/api/v1/namespaces/default/pods/one"))["spec"]["serviceAccountName"] == "default"
        other = {"metadata": {"name": "two"}, "spec": {**POD["spec"], "serviceAccountName": "missing"}}
        with pytest.raises(RefusedError, match="serviceaccount"):
            await api.post("/api/v1/namespaces/default/pods", other)
        token = await api.post(f"{account}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
        assert token["status"]["token"].count(".") == 2


async def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    server = KubeServer(tmp_path / "own", controllers=(), api_args=("--no-such-flag",))
    with pytest.raises(FatalError, match=r"(?s)kube-apiserver ended with 1: .*unknown flag: --no-such-flag"):
        await server.start()
    assert server.pids == {}


async def test_a_missing_controller_manager_is_named(tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).symlink_to(kube_assets() / name)
    server = KubeServer(tmp_path / "own", assets=assets)
    with pytest.raises(FatalError, match="has no kube-controller-manager: run make kube-assets"):
        await server.start()
    assert server.pids == {}


async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from berth.lab.servers.kube_server import KubeServer\n"
        "server = KubeServer(Path(sys.argv[1]), controllers=())\n"
        "asyncio.run(server.start())\n"
        "print(*server.pids.values(), flush=True)\n"
        "os._exit(1)\n"
    )
    done = subprocess.run(  # noqa: ASYNC221, S603  # our own program, short
        [sys.executable, "-c", program, tmp_path / "own"], capture_output=True, text=True, check=False, timeout=60
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    await until(lambda: not any(map(is_running, pids)), deadline_s=10, what="both are gone")
