"""The table of ``docs/reference/kubernetes-rights.md``: each account and request, with the policies and without.

All requests are dry runs on one server; its users have the names of the accounts, and the roles of ``k8s/``.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.ascend.pod_annotations import (
    ASCEND_REAL,
    CONFIGURATION_910,
    CONFIGURATION_NPU,
    KLT_DEV,
    MAC,
    MARKS,
    PREDICATE_TIME,
)
from berth.formats.kubernetes.objects import Listed
from berth.lab.servers.kube_server import KubeServer
from berth.products.resources import RESOURCES
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from berth.services.binder.cluster import NotYetError
from berth.services.binder.config import BinderConfig
from berth.services.binder.kube_cluster import KubeCluster
from berth.services.binder.metrics import BinderMetrics
from berth.services.binder.node_cards import NodeLean
from tests.support.account_requests import ACCOUNTS, BERTH, PODS, REQUESTS, STRANGER, SYSTEM, TEAM, Request, a_pod, fill
from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kube_binder import a_gang, a_node, members_of
from tests.support.kube_objects import apply, collection_of, path_of
from tests.support.kustomize import Tree, render
from tests.support.prepared_server import prepare
from tests.support.waiting import until_true

K8S: Final = Path(__file__).parents[2] / "k8s"
PAGE: Final = K8S.parent / "docs" / "reference" / "kubernetes-rights.md"


def table() -> dict[str, dict[str, str]]:
    """Answers of the page by request and account."""
    section = PAGE.read_text("utf-8").partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    head, _, *body = rows
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in body}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server with the roles of production, the policies, and one object of each kind; no policy is in force."""
    users = dict.fromkeys([*ACCOUNTS.values(), STRANGER], ())
    made = KubeServer(tmp_path_factory.mktemp("kube"), users=users, start_deadline_s=50)
    asyncio.run(made.start())
    try:
        prepare(made)
        asyncio.run(fill(made, objects()))
        yield made
    finally:
        asyncio.run(made.stop())


def objects() -> list[Tree]:
    kinds = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy")
    found = render(K8S / "overlays" / "prod")
    names = {"berth-policies", SYSTEM}
    wanted = [one for one in found if one["kind"] in kinds or one["metadata"]["name"] in names]
    return sorted(wanted, key=lambda one: (one["kind"] != "Namespace", one["kind"].endswith("Binding")))


def bindings() -> list[Tree]:
    return [one for one in render(K8S / "overlays" / "prod") if one["kind"] == "ValidatingAdmissionPolicyBinding"]


class Enforced(NamedTuple):
    """A server with the policies in force, and what it refused before they were."""

    server: KubeServer
    without: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def enforced(server: KubeServer) -> Enforced:
    """The policies are never taken away again: a server that gets them anew may not see their parameter change."""

    async def enforce() -> dict[str, dict[str, str]]:
        without = await answers(server)
        async with KubeApi(server) as api:
            for one in bindings():
                await apply(api, one)
        await until_true(lambda: are_in_force(server), deadline_s=30, what="all policies are in force")
        return without

    return Enforced(server, asyncio.run(enforce()))


PROBES: Final = {
    "binder": ("patch a label of a pod", "patch what becomes of a volume", "delete a pod of another scheduler"),
    "summary": ("create another ConfigMap",),
    "inventory": ("create another queue",),
    "tenant": ("patch a mark of a pod", "patch chips of a pod"),
}
"""A request that each policy refuses."""


async def are_in_force(server: KubeServer) -> bool:
    answers = [await answer_of(server, account, name) for account, names in PROBES.items() for name in names]
    return all("ValidatingAdmissionPolicy" in text for text in answers)


async def answer_of(server: KubeServer, account: str, name: str) -> str:
    """Why a request is refused; empty if it is not."""
    async with KubeApi(server, user=ACCOUNTS.get(account, account)) as api:
        return await ask(api, REQUESTS[name])


async def ask(api: KubeApi, request: Request) -> str:
    try:
        await api.call(
            request.method, request.path, request.body, params={"dryRun": "All"}, content_type=request.content_type
        )
    except RefusedError as error:
        return str(error)
    return ""


async def answers(server: KubeServer) -> dict[str, dict[str, str]]:
    """Refusals of all requests by all accounts."""
    found: dict[str, dict[str, str]] = {name: {} for name in REQUESTS}
    async with AsyncExitStack() as stack:
        for account, user in ACCOUNTS.items():
            api = await stack.enter_async_context(KubeApi(server, user=user))
            for name, request in REQUESTS.items():
                found[name][account] = await ask(api, request)
    return found


def word(with_policies: str, without: str) -> str:
    """How the page says it."""
    if with_policies == without == "":
        return "yes"
    if without == "":
        named = re.search(r"ValidatingAdmissionPolicy '(berth-\w+)'", with_policies)
        return "policy" if named else with_policies
    is_role = "cannot" in without and "cannot" in with_policies
    return "no" if is_role else f"{with_policies} / {without}"


@pytest.mark.timeout(180)
async def test_each_account_may_do_what_the_page_says_with_and_without_the_policies(enforced: Enforced) -> None:
    found = await answers(enforced.server)
    said = {
        name: {account: word(text, enforced.without[name][account]) for account, text in row.items()}
        for name, row in found.items()
    }
    assert said == table()


@asynccontextmanager
async def parameter_is(server: KubeServer, data: dict[str, str] | None) -> AsyncIterator[None]:
    """Change the parameter for a while; None: it is missing."""
    (one,) = [one for one in objects() if one["metadata"]["name"] == "berth-policies"]
    async with KubeApi(server) as api:
        if data is None:
            await api.delete(path_of(one))
        else:
            await api.call("PUT", path_of(one), {**one, "data": data})
        try:
            yield
        finally:
            await (api.post(collection_of(one), one) if data is None else api.call("PUT", path_of(one), one))
            await until_true(lambda: are_in_force(server), deadline_s=30, what="all policies are in force again")


@pytest.mark.timeout(120)
async def test_without_its_parameter_the_policy_that_reads_it_permits_all_and_the_others_hold(
    enforced: Enforced,
) -> None:
    server = enforced.server

    async def is_seen() -> bool:
        return not await answer_of(server, "binder", "delete a pod of another scheduler")

    async with parameter_is(server, None):
        await until_true(is_seen, deadline_s=20, what="the parameter is missing")
        assert "berth-pods" in await answer_of(server, "tenant", "patch chips of a pod")
        assert "berth-summary" in await answer_of(server, "summary", "create another ConfigMap")


@pytest.mark.timeout(120)
async def test_a_key_that_the_parameter_lacks_names_nobody(enforced: Enforced) -> None:
    server = enforced.server

    async def is_seen() -> bool:
        return "berth-deletions" in await answer_of(server, "binder", "delete a pod of Berth")

    async with parameter_is(server, {}):
        await until_true(is_seen, deadline_s=20, what="the parameter without keys")
        assert await answer_of(server, "device plug-in", "patch chips of a pod") == ""


@pytest.mark.timeout(60)
async def test_an_account_that_no_policy_names_writes_neither_marks_nor_chips(enforced: Enforced) -> None:
    server = enforced.server
    for name in (
        "patch a mark of a pod",
        "patch a mark of a pod with its status",
        "bind a pod with a mark",
        "bind a pod with a mark by the old path",
        "patch chips of a pod",
        "patch chips of a pod with its status",
        "bind a pod with chips",
    ):
        assert "berth-pods" in await answer_of(server, STRANGER, name), name
    for name in ("patch another annotation of a pod", "patch the status of a pod", "bind a pod"):
        assert await answer_of(server, STRANGER, name) == "", name


def test_a_policy_names_the_annotations_that_berth_reads() -> None:
    (policy,) = [one for one in objects() if one["metadata"]["name"] == "berth-pods"]
    found = {one["name"]: set(re.findall(r"'([^']+)'", one["expression"])) for one in policy["spec"]["variables"]}
    assert found["marks"] == {*MARKS, MAC}
    configurations = {CONFIGURATION_910, CONFIGURATION_NPU}
    assert found["chips"] >= {*RESOURCES, ASCEND_REAL, KLT_DEV, PREDICATE_TIME, *configurations}


@pytest.mark.timeout(120)
async def test_a_binder_binds_cleans_and_deletes_where_the_policies_are_in_force(
    enforced: Enforced, tmp_path: Path
) -> None:
    """A pod that is made from the YAML of a running one: the account of the binder gives it marks of its own."""
    proofs = MarkProofs([bytes(range(32))])
    server = enforced.server
    async with KubeApi(server) as api:
        await api.post("/api/v1/nodes", a_node("n2"))
        config = KubeConfig(kubeconfig=server.write_kubeconfig(tmp_path / "kubeconfig", user=BERTH["binder"]))
        copied = a_pod("copied")
        copied["metadata"]["annotations"] = {"berth/uid": "old", "berth/step": "4", "predicate-time": "5"}
        made = await api.post(PODS, copied)
        gang = a_gang("job", ["n2"], [()], namespace=TEAM)
        async with await Client.connect(config, clock=SystemClock()) as client:
            instruments = Instruments.make(BinderMetrics)
            cluster = KubeCluster(client, SystemClock(), BinderConfig(), instruments, marks=proofs)
            cluster.nodes.replace((await client.get("/api/v1/nodes", Listed[NodeLean])).items or [])
            cluster.take_members(members_of(gang, [(0, "copied", made["metadata"]["uid"])], stale=[0]))
            assert (await cluster.bind(gang)).bound == 1
            found = (await api.get(f"{PODS}/copied"))["metadata"]["annotations"]
            assert (found["berth/uid"], found.get("berth/step")) == (gang.uid, None)
            assert proofs.counted(made["metadata"]["uid"], found) is found
            with pytest.raises(NotYetError):
                await cluster.evict(gang, reason="cancelled")
        await until_true(lambda: is_going(api, "copied"), deadline_s=20, what="the pod ends")


async def is_going(api: KubeApi, name: str) -> bool:
    found = [one["metadata"] for one in await api.items(PODS) if one["metadata"]["name"] == name]
    return not found or "deletionTimestamp" in found[0]
