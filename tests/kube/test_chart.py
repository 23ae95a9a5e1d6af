"""The chart in ``k8s/chart`` with Helm itself: what it makes is what kustomize makes, and a real server takes it.

Excluded: what the manifests do, which ``tests/kube/test_manifests.py`` shows with the same objects.
"""

import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest
import yaml

from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import server_binary
from berth.runtime.keys.rights import rights_of_person, widest
from tests.support.kube_api import KubeApi
from tests.support.kube_objects import apply, in_order, lost, path_of
from tests.support.kustomize import Tree, pod_spec, read, render
from tests.support.manifest_programs import CHART, Helm, HelmError, kustomize_build
from tests.support.pods import workloads
from tests.support.waiting import until_true

K8S: Final = CHART.parent
DOCS: Final = K8S.parent / "docs"
NAMESPACE: Final = "berth-system"
VALUES: Final[dict[str, list[str | Path]]] = {
    "prod": [],
    "dev": ["--values", CHART / "values-dev.yaml"],
    "small": ["--values", CHART / "values-small.yaml"],
}
OF_GATEWAY: Final = {"prod": ["users"], "small": ["network"]}
"""Components that an overlay without the gateway needs with it."""
ALL_VALUES: Final = """
namespace: {name: NAMESPACE}
image: {repository: "registry.example:5000/team/berth", tag: 9.8.7, pullPolicy: Always, pullSecrets: [{name: registry}]}
cell: east
environment: {BERTH_SOURCE: clusterd}
settings: {binder: "[kube]\\n"}
priorityClass: {create: false, name: system-cluster-critical}
tolerations: []
nodeSelector: {zone: a}
nats:
  image: {repository: registry.example/nats, tag: 2.15.1-alpine}
  auth: {secret: other}
  tls: {secret: certificate-of-nats}
  storage: {size: 100Gi, className: fast}
  tolerations: [{key: storage, operator: Exists}]
  nodeSelector: {disk: ssd}
dispatcher: {replicas: 3, resources: {limits: {cpu: "2"}}}
scorer: {replicas: 4}
api: {replicas: 1}
gateway: {enabled: true, replicas: 5, tokens: {secret: digests}}
networkPolicies: {egress: [{ports: [{protocol: UDP, port: 5353}]}]}
marks: {secret: other-marks}
policies: {chipWriters: "system:serviceaccount:kube-system:plug-in\\n", schedulerNames: "berth\\nvolcano\\n"}
"""
"""Something else than the default for every value, apart from switches."""
OPEN: Final = "auth: {enabled: false}, tls: {enabled: false}"
WRONG: Final = [
    ("dispatcher: {replicas: 0}", "/dispatcher/replicas"),
    ("dispatcher: {replicas: two}", "/dispatcher/replicas"),
    ("dispatcher: {replicaCount: 2}", "replicaCount"),
    ("dispatcher: {resources: {request: {cpu: 1}}}", "request"),
    ("dispatcher: {resources: {requests: {cpu: much}}}", "/dispatcher/resources/requests/cpu"),
    ("image: {tag: 'a tag'}", "/image/tag"),
    ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
    ("cell: a.b", "/cell"),
    ("environment: {LANG: C}", "LANG"),
    ("environment: {BERTH_LOG__LEVEL: 3}", "/environment/BERTH_LOG__LEVEL"),
    ("environment: {BERTH_SHARDS: '3'}", "environment.BERTH_SHARDS is 3, expected none: scorer.replicas sets it"),
    ("settings: {binder: ''}", "/settings/binder"),
    ("priorityClass: {value: 2000000000}", "/priorityClass/value"),
    ("priorityClass: {name: ''}", "priorityClass.name is empty"),
    ("tolerations: [{key: a, effect: Never}]", "/tolerations/0/effect"),
    ("nats: {streamReplicas: 2}", "/nats/streamReplicas"),
    ("nats: {streamReplicas: 5}", "nats.streamReplicas is 5, expected at most 3: nats.embedded is true"),
    ("nats: {url: http://nats}", "/nats/url"),
    ("nats: {url: 'nats://n:4222'}", "nats.url is nats://n:4222, expected tls://: nats.tls.enabled is true"),
    ("nats: {tls: {secret: A_b}}", "/nats/tls/secret"),
    ("environment: {BERTH_BUS__TLS_CA_FILE: /ca}", "expected none: nats.tls.enabled sets it"),
    ("nats: {storage: {size: 4Gi}}", "/nats/storage/size"),
    ("nats: {storage: {size: 20G}}", "/nats/storage/size"),
    ("nats: {embedded: false}", "nats.url is empty"),
    ("nats: {embedded: false, url: 'tls://n:4222'}", "networkPolicies.egress is empty"),
    (
        "{nats: {embedded: false, url: 'tls://n:4222'}, natsExporter: {enabled: true}}",
        "natsExporter.enabled is true, expected false: nats.embedded is false",
    ),
    ("natsExporter: {image: {tag: ''}}", "/natsExporter/image/tag"),
    ("oneProcess: {enabled: true}", "nats.auth.enabled is true, expected false: oneProcess.enabled is true"),
    (f"oneProcess: {{enabled: true}}\nnats: {{{OPEN}}}", "nats.streamReplicas is 3, expected 1: oneProcess.enabled is"),
    (
        f"oneProcess: {{enabled: true}}\nnats: {{{OPEN}, streamReplicas: 1}}\nnodesim: {{enabled: true}}",
        "nodesim.enabled is",
    ),
    ("oneProcess: {enabled: true}\nnats: {auth: {enabled: false}}", "nats.tls.enabled is true, expected false"),
    ("namespace: {create: true}", 'namespace.name is ""'),
]


def by_path(objects: list[Tree]) -> dict[str, Tree]:
    return {path_of(one): one for one in objects}


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(tmp_path / "helm")


@pytest.mark.parametrize("overlay", sorted(VALUES))
def test_the_chart_and_kustomize_make_the_same_objects(helm: Helm, overlay: str) -> None:
    wanted = render(K8S / "overlays" / overlay)
    names = ("--set", f"namespace.create=true,namespace.name={NAMESPACE}")
    assert helm.template(*VALUES[overlay], *names) == wanted
    assert kustomize_build(K8S / "overlays" / overlay) == wanted


def test_the_packed_chart_has_its_files(helm: Helm, tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    (archive,) = tmp_path.glob("berth-*.tgz")
    with tarfile.open(archive) as packed:
        found = {Path(one.name).relative_to("berth") for one in packed.getmembers() if one.isfile()}
    assert found == {path.relative_to(CHART) for path in CHART.rglob("*") if path.is_file()}


@pytest.mark.parametrize("overlay", sorted(OF_GATEWAY))
def test_the_gateway_is_what_kustomize_makes_of_its_components(helm: Helm, tmp_path: Path, overlay: str) -> None:
    components = [K8S / "gateway", *(K8S / "gateway" / name for name in OF_GATEWAY[overlay])]
    wanted = render(K8S / "overlays" / overlay, components)
    names = ("--set", f"namespace.create=true,namespace.name={NAMESPACE},gateway.enabled=true")
    assert helm.template(*VALUES[overlay], *names) == wanted
    mine = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(K8S / "overlays" / overlay, tmp_path)],
        "components": [os.path.relpath(one, tmp_path) for one in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(mine))
    assert kustomize_build(tmp_path) == wanted


def test_the_rights_of_the_gateway_name_streams_of_the_cell(helm: Helm) -> None:
    made = helm.template("--set", "gateway.enabled=true,cell=east")
    (access,) = [
        one["data"]["access.conf"] for one in made if one["metadata"]["name"].startswith("nats-") and "data" in one
    ]
    assert '"$JS.API.STREAM.MSG.GET.LEDGER_east"' in access
    assert '"berth.east.gate.*.*"' in access
    assert "default" not in access.partition("\n")[2]


def test_more_users_of_nats_have_the_rights_that_the_values_give_them(helm: Helm, tmp_path: Path) -> None:
    (shown,) = re.findall(
        r"```yaml\n(nats:\n  auth:\n    users: .*?)```",
        (DOCS / "howto" / "add-a-nats-user.md").read_text("utf-8"),
        re.DOTALL,
    )
    values = tmp_path / "values.yaml"
    values.write_text(shown)
    (access,) = [
        one["data"]["access.conf"]
        for one in helm.template("--values", values)
        if one["metadata"]["name"].startswith("nats-") and "data" in one
    ]
    rights = yaml.safe_load(shown)["nats"]["auth"]["users"]
    assert access.index(rights) < access.index("user: inventory")
    config = tmp_path / "access.conf"
    config.write_text(access)
    passwords = dict.fromkeys(re.findall(r"\$(PASSWORD_[A-Z]+)", access), "secret")
    subprocess.run([server_binary(), "-c", config, "-t"], check=True, capture_output=True, env=passwords)  # noqa: S603  # it only reads the file
    found = re.search(r"publish: \[(.*?)\]\s+subscribe: \[(.*?)\]", rights, re.DOTALL)
    assert found is not None
    publish, subscribe = found.groups()
    wanted = rights_of_person("default", ["dead", "repair"], name="admin")
    assert sorted(re.findall('"(.+?)"', publish)) == sorted(widest(wanted.publish))
    assert re.findall('"(.+?)"', subscribe) == list(wanted.subscribe)


def test_a_pod_monitor_is_made_where_it_is_asked_for(helm: Helm) -> None:
    made = helm.template("--namespace", NAMESPACE, "--set", "podMonitor.enabled=true,podMonitor.labels.release=a")
    (monitor,) = [one for one in made if one["kind"] == "PodMonitor"]
    (wanted,) = [one for one in read(K8S / "monitoring" / "pod-monitor.yaml") if one["metadata"]["name"] == "berth"]
    wanted["metadata"]["labels"] |= {"app.kubernetes.io/part-of": "berth", "release": "a"}
    assert monitor == wanted


def test_what_watches_a_cell_is_what_kustomize_makes(helm: Helm) -> None:
    asked = "podMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true,natsExporter.enabled=true"
    without = helm.template("--namespace", NAMESPACE)
    made = helm.template("--namespace", NAMESPACE, "--set", asked)
    wanted = render(K8S / "monitoring")
    assert {one["kind"] for one in wanted} >= {"PrometheusRule", "ConfigMap", "Deployment", "NetworkPolicy"}
    assert by_path([one for one in made if one not in without]) == by_path(wanted)


def test_what_watches_a_small_cell_asks_its_one_node_of_nats(helm: Helm) -> None:
    made = helm.template("--namespace", NAMESPACE, *VALUES["small"], "--set", "natsExporter.enabled=true")
    (container,) = pod_spec(workloads(made)["nats-exporter"])["containers"]
    assert [one for one in container["args"] if one.startswith("http")] == ["http://nats-0.nats:8222"]


def test_rules_and_dashboard_get_the_labels_by_which_they_are_found(helm: Helm) -> None:
    labels = "prometheusRule.labels.release=a,dashboard.labels.grafana_dashboard=null,dashboard.labels.folder=npu"
    asked = "prometheusRule.enabled=true,dashboard.enabled=true"
    made = helm.template("--namespace", NAMESPACE, "--set", f"{asked},{labels}")
    (rule,) = [one for one in made if one["kind"] == "PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "a"
    (dashboard,) = [one for one in made if one["metadata"]["name"].startswith("berth-dashboard-")]
    assert dashboard["metadata"]["labels"] == {"app.kubernetes.io/part-of": "berth", "folder": "npu"}


@pytest.mark.parametrize("overlay", sorted(VALUES))
def test_lint_finds_nothing(helm: Helm, overlay: str) -> None:
    said = helm("lint", "--strict", CHART, *VALUES[overlay])
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert re.findall(r"\[(?:WARNING|ERROR)\].*", said) == []


@pytest.mark.parametrize(("values", "named"), WRONG, ids=lambda text: re.sub(r"\W+", "-", text).strip("-"))
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, tmp_path: Path, values: str, named: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(values)
    with pytest.raises(HelmError) as refused:
        helm.template("--values", path)
    assert named in str(refused.value)


def test_a_nats_that_is_there_replaces_that_of_the_chart(helm: Helm, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    rule = "{ports: [{protocol: TCP, port: 4222}]}"
    path.write_text(
        f"nats: {{embedded: false, url: 'tls://nats.example:4222'}}\nnetworkPolicies: {{egress: [{rule}]}}\n"
    )
    made = helm.template("--namespace", NAMESPACE, "--values", path)
    assert "nats" not in workloads(made)
    assert [one for one in made if one["metadata"]["name"].split("-")[0] == "nats"] == []
    (environment,) = [one for one in made if one["metadata"]["name"].startswith("berth-environment-")]
    assert environment["data"]["BERTH_BUS__URL"] == "tls://nats.example:4222"
    (policy,) = [one for one in made if (one["kind"], one["metadata"]["name"]) == ("NetworkPolicy", "berth")]
    assert yaml.safe_load(rule) in policy["spec"]["egress"]


def test_without_tls_nothing_asks_for_its_secret(helm: Helm) -> None:
    made = helm.template("--namespace", NAMESPACE, "--set", "nats.tls.enabled=false")
    for one in workloads(made).values():
        assert "berth-nats-tls" not in yaml.safe_dump(one)
    maps = {one["metadata"]["name"].rpartition("-")[0]: one["data"] for one in made if one["kind"] == "ConfigMap"}
    assert maps["berth-environment"]["BERTH_BUS__URL"].startswith("nats://nats-0.nats:4222,")
    assert "BERTH_BUS__TLS_CA_FILE" not in maps["berth-environment"]
    assert "cert_file" not in maps["nats"]["tls.conf"]
    assert "PASSWORD_API" in maps["nats"]["access.conf"]


def test_an_older_server_gets_no_policies_and_volumes_no_rights_where_they_are_off(helm: Helm) -> None:
    kinds = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert kinds <= {one["kind"] for one in helm.template()}
    assert not kinds & {one["kind"] for one in helm.template("--kube-version", "1.29.0")}
    off = helm.template("--set", "policies.enabled=false,volumes.enabled=false,marks.enabled=false")
    assert {one["kind"] for one in off} & kinds == {"ValidatingAdmissionPolicy"}
    names = {one["metadata"]["name"] for one in off}
    assert "berth-binder" in names
    assert "berth-binder-volumes" not in names
    assert not any("berth-marks" in str(one) for one in off if one["kind"] == "Deployment")


async def test_a_server_takes_the_chart_with_other_values(
    helm: Helm, kube_api: KubeApi, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(ALL_VALUES.replace("NAMESPACE", namespace))
    made = helm.template("--values", path)
    for one in in_order(made):
        assert lost(one, await apply(kube_api, one, dry=True)) == [], path_of(one)
    specs = {name: pod_spec(one) for name, one in workloads(made).items()}
    for name, spec in specs.items():
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        (container,) = spec["containers"]
        assert container["imagePullPolicy"] == "Always"
        image = {"nats": "nats:2.15.1-alpine", "nodesim": "berth-lab:9.8.7"}.get(name, "berth:9.8.7")
        registry = "registry.example" if name == "nats" else "registry.example:5000/team"
        assert container["image"] == f"{registry}/{image}"
        assert spec["nodeSelector"] == ({"disk": "ssd"} if name == "nats" else {"zone": "a"})
        assert spec.get("tolerations") == ([{"key": "storage", "operator": "Exists"}] if name == "nats" else None)
    replicas = {name: one["spec"]["replicas"] for name, one in workloads(made).items()}
    assert replicas == {name: {"dispatcher": 3, "scorer": 4, "nats": 3, "gateway": 5}.get(name, 1) for name in specs}
    maps = {one["metadata"]["name"].rpartition("-")[0]: one["data"] for one in made if one["kind"] == "ConfigMap"}
    environment = maps["berth-environment"]
    assert (environment["BERTH_SHARDS"], environment["BERTH_BUS__CELL"]) == ("4", "east")
    assert environment["BERTH_SOURCE"] == "clusterd"
    assert "max_file_store: 90GB" in maps["nats"]["server.conf"]
    assert ('"berth.east.ledger"' in maps["nats"]["access.conf"], "default." in maps["nats"]["access.conf"]) == (
        True,
        False,
    )
    for spec in specs.values():
        secrets = {one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one}
        assert "certificate-of-nats" in secrets <= {"other", "certificate-of-nats", "other-marks"}
    (parameter,) = [one for one in made if one["metadata"]["name"] == "berth-policies"]
    assert parameter["data"]["scheduler-names"].splitlines() == ["berth", "volcano"]
    policies = [one for one in made if one["kind"] == "ValidatingAdmissionPolicy"]
    texts = " ".join(str(one["spec"]) for one in policies)
    assert f"'system:serviceaccount:{namespace}:binder'" in texts
    assert "['system:serviceaccount:kube-system:plug-in']" in texts
    assert NAMESPACE not in texts
    tokens = next(one for one in specs["gateway"]["containers"][0]["env"] if one["name"] == "BERTH_TOKENS")
    assert tokens["valueFrom"]["secretKeyRef"]["name"] == "digests"
    claim = workloads(made)["nats"]["spec"]["volumeClaimTemplates"][0]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "100Gi")


@pytest.mark.timeout(120)
async def test_helm_takes_over_what_kubectl_applied_and_no_pod_restarts(
    kube_server: KubeServer, kube_api: KubeApi, namespace: str, tmp_path: Path
) -> None:
    helm = Helm(tmp_path / "helm", kube_server.write_kubeconfig(tmp_path / "kubeconfig"))
    here = ("--namespace", namespace)
    made = helm.template(*here)
    for one in in_order(made):
        await apply(kube_api, one)
    before = {path_of(one): (await kube_api.get(path_of(one)))["spec"] for one in workloads(made).values()}
    helm("install", "berth", CHART, *here, "--take-ownership", "--force-conflicts")
    for path, spec in before.items():
        assert (await kube_api.get(path))["spec"] == spec, path
    helm("uninstall", "berth", *here)


@pytest.mark.timeout(120)
async def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(
    kube_server: KubeServer, kube_api: KubeApi, namespace: str, tmp_path: Path
) -> None:
    helm = Helm(tmp_path / "helm", kube_server.write_kubeconfig(tmp_path / "kubeconfig"))
    here = ("--namespace", namespace)
    made = helm.template(*here)

    async def is_there(one: Tree) -> bool:
        return await kube_api.status_of("GET", path_of(one)) == 200

    async def claims() -> list[str]:
        found = await kube_api.items(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
        return sorted(one["metadata"]["name"] for one in found)

    async def all_claims_are_there() -> bool:
        return await claims() == ["data-nats-0", "data-nats-1", "data-nats-2"]

    helm("install", "berth", CHART, *here)
    for one in made:
        assert lost(one, await kube_api.get(path_of(one))) == [], path_of(one)
    await until_true(all_claims_are_there, deadline_s=30, what="volumes of NATS")

    dispatcher = workloads(made)["dispatcher"]
    (old,) = [one for one in made if one["metadata"]["name"].startswith("berth-dispatcher-")]
    helm(
        "upgrade",
        "berth",
        CHART,
        *here,
        "--set",
        "dispatcher.replicas=3",
        "--set-string",
        "settings.dispatcher=grace_s=9",
    )
    assert (await kube_api.get(path_of(dispatcher)))["spec"]["replicas"] == 3
    assert not await is_there(old)
    with pytest.raises(HelmError, match="Forbidden"):  # what a StatefulSet cannot change
        helm("upgrade", "berth", CHART, *here, "--set", "nats.storage.size=30Gi")
    helm("rollback", "berth", "1", *here)
    assert (await kube_api.get(path_of(dispatcher)))["spec"]["replicas"] == 2
    assert await is_there(old)

    helm("uninstall", "berth", *here)
    assert [path_of(one) for one in made if await is_there(one)] == []
    assert await claims() == ["data-nats-0", "data-nats-1", "data-nats-2"]
