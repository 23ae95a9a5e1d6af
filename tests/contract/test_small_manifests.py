"""``k8s/overlays/small``: one process in place of all services, with their rights and one node of NATS.

Excluded: whether an API server takes the manifests, and whether kustomize reads them as we do, which
``tests/kube/test_small_manifests.py`` tries on real ones.
"""

from pathlib import Path
from typing import Any, Final

from berth.cell.config import CellSettings, load_cell
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.inventory.config import InventoryConfig
from tests.support.kube_rights import rights_of
from tests.support.kustomize import Tree, identity, pod_spec, render
from tests.support.pods import Pod, pods_of, workloads

K8S: Final = Path(__file__).parents[2] / "k8s"
BASE: Final = render(K8S / "base")
SMALL: Final = render(K8S / "overlays" / "small")
MERGED: Final = ("inventory", "health", "binder", "summary")
"""Services with rights in the cluster."""


def of_kind(objects: list[Tree], *kinds: str) -> list[Tree]:
    return [one for one in objects if one["kind"] in kinds]


def pod() -> Pod:
    (found,) = pods_of(SMALL, "cell", secrets={})
    return found


def settings(tmp_path: Path) -> CellSettings:
    path = tmp_path / "cell.toml"
    path.write_text(pod().files[pod().command[-1]])
    return load_cell(path, pod().environment)


def test_one_process_and_one_node_of_nats_run_and_nothing_of_the_others_is_left() -> None:
    assert sorted(workloads(SMALL)) == ["cell", "nats"]
    (nats,) = of_kind(SMALL, "StatefulSet")
    assert nats["spec"]["replicas"] == 1
    names = {one["metadata"]["name"] for one in of_kind(SMALL, "ConfigMap")} - {"berth-policies"}
    assert {name.rpartition("-")[0] for name in names} == {"berth-cell", "berth-environment", "nats"}
    assert [one["metadata"]["name"] for one in of_kind(SMALL, "ServiceAccount")] == ["cell"]
    assert [one["metadata"]["name"] for one in of_kind(SMALL, "PodDisruptionBudget", "Service")] == ["nats"]


def test_everything_else_is_that_of_the_base() -> None:
    kept = {"ClusterRole", "Role", "Namespace", "PriorityClass"}
    small = {identity(one): one for one in of_kind(SMALL, *kept)}
    base = {identity(one): one for one in of_kind(BASE, *kept)}
    assert small == base


def test_it_has_the_rights_of_all_services_and_no_more() -> None:
    def granted(objects: list[Tree], *services: str) -> list[Any]:
        return sorted(str(rule) for service in services for rule in rights_of(objects, service))

    assert granted(SMALL, "cell") == granted(BASE, *MERGED)
    assert granted(SMALL, *MERGED) == []


def test_its_settings_are_those_of_the_services(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert [one.name for one in found.services] == ["api", "binder", "dispatcher", "inventory", "health", "summary"]
    configs = {one.name: one.config for one in found.services}
    dispatcher, inventory = configs["dispatcher"], configs["inventory"]
    assert isinstance(dispatcher, DispatcherConfig)
    assert isinstance(inventory, InventoryConfig)
    assert (dispatcher.shards, dispatcher.lease) == (0, False)
    assert dispatcher.decisions.needs_health
    assert inventory.gangs.scheduler_names == ("berth",)
    assert dispatcher.bus.replicas == 1
    assert found.cell.probes.port == 8080
    assert found.cell.bus.url == "nats://nats-0.nats:4222"


def test_the_pod_is_as_safe_as_those_of_the_base_and_has_time_to_end(tmp_path: Path) -> None:
    (cell,) = of_kind(SMALL, "Deployment")
    (binder,) = [one for one in of_kind(BASE, "Deployment") if one["metadata"]["name"] == "binder"]
    ours, theirs = pod_spec(cell), pod_spec(binder)
    for name in ("securityContext", "tolerations", "priorityClassName", "terminationGracePeriodSeconds"):
        assert ours[name] == theirs[name], name
    assert ours["containers"][0]["securityContext"] == theirs["containers"][0]["securityContext"]
    assert cell["spec"]["strategy"] == {"type": "Recreate"}, "two would lead the same cell"
    assert settings(tmp_path).cell.grace_s + 5 < ours["terminationGracePeriodSeconds"]


def test_only_the_pod_of_berth_reaches_nats() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(SMALL, "NetworkPolicy")}
    assert sorted(policies) == ["berth", "berth-api-server", "nats"]
    (ingress,) = policies["nats"]["ingress"]
    assert ingress["from"][0] == {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "berth"}}}
    expressions = policies["berth-api-server"]["podSelector"]["matchExpressions"]
    (of_component,) = [one for one in expressions if one["key"] == "app.kubernetes.io/component"]
    assert "cell" in of_component["values"]
