"""``k8s/`` holds together: what it names exists, its settings are settings of the services, and its rights are few.

Excluded: whether an API server takes the manifests, which ``tests/kube/test_manifests.py`` tries on a real one, and
whether the image runs in a container.

Longer than 400 lines because one rendering of the three kustomizations serves all questions about them.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.servers.nats_server import server_binary
from berth.runtime.config import load
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.scorer.config import ScorerConfig
from tests.contract.test_compose import settings_type
from tests.support.certificates import documented_secret
from tests.support.kustomize import Tree, containers_of, identity, pod_spec, read, render
from tests.support.nats_rights import PEOPLE, access_conf
from tests.support.pods import Pod, pods_of, workloads
from tests.support.services import OF_LAB, PACKAGES

ROOT: Final = Path(__file__).parents[2]
K8S: Final = ROOT / "k8s"
NAMESPACE: Final = "berth-system"
FOLDERS: Final = {"base": K8S / "base", "dev": K8S / "overlays" / "dev", "prod": K8S / "overlays" / "prod"}
OBJECTS: Final = {name: render(folder) for name, folder in FOLDERS.items()}
OF_COMPONENTS: Final = {"gateway"}
"""Services that are no part of the base; ``test_gateway_manifests.py`` is about them."""
SERVICES: Final = sorted(PACKAGES.keys() - OF_COMPONENTS)
OF_TRIALS: Final = set(OF_LAB)
WITH_API: Final = {"inventory", "health", "binder", "summary", "nodesim"}
USERS: Final = ["inventory", "health", "dispatcher", "scorer", "binder", "summary", "api", PEOPLE, "streams"]
SECRETS: Final = {
    "berth-nats": {name: f"0of{number}" for number, name in enumerate([*USERS, "route"])},
    "berth-nats-tls": {"ca.crt": "an authority", "tls.crt": "a certificate", "tls.key": "a key"},
    "berth-marks": {"keys": "of marks"},
}
NOT_NAMESPACED: Final = {
    "Namespace",
    "PriorityClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
GRACE_S: Final = 5

each_form = pytest.mark.parametrize("form", sorted(OBJECTS))
each_workload = pytest.mark.parametrize(
    ("form", "name"), [(form, name) for form, objects in OBJECTS.items() for name in workloads(objects)]
)
each_service = pytest.mark.parametrize(
    ("form", "name"),
    [
        (form, name)
        for form, objects in OBJECTS.items()
        for name in workloads(objects)
        if name not in {"nats", *OF_COMPONENTS}
    ],
)


def of_kind(form: str, *kinds: str) -> list[Tree]:
    return [one for one in OBJECTS[form] if one["kind"] in kinds]


def pods(form: str, name: str) -> list[Pod]:
    return pods_of(OBJECTS[form], name, secrets=SECRETS)


def files_in(pod: Pod, folder: Path) -> dict[str, Path]:
    """The pod's files, written below a folder, by their path in the container."""
    found = {}
    for path, text in pod.files.items():
        found[path] = folder / path.lstrip("/")
        found[path].parent.mkdir(parents=True, exist_ok=True)
        found[path].write_text(text)
    return found


def settings(pod: Pod, folder: Path) -> Any:  # noqa: ANN401 - of whatever service
    struct = settings_type(PACKAGES[pod.workload])
    assert struct is not None
    return load(struct, files_in(pod, folder)[pod.command[-1]], pod.environment)


@each_form
def test_kubectl_makes_the_same_of_it(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        with capfd.disabled():
            print(f"\nk8s/{form}: not compared with kubectl kustomize, since there is no kubectl")  # noqa: T201
        assert OBJECTS[form]
        return
    made = subprocess.run(  # noqa: S603  # our own words
        [kubectl, "kustomize", FOLDERS[form]], capture_output=True, text=True, check=True, timeout=30
    )
    assert sorted(yaml.safe_load_all(made.stdout), key=identity) == OBJECTS[form]


def test_every_file_is_used() -> None:
    text = "\n".join((folder / "kustomization.yaml").read_text("utf-8") for folder in FOLDERS.values())
    files = [path for folder in FOLDERS.values() for path in folder.rglob("*") if path.is_file()]
    unused = [
        path
        for path in files
        if path.name != "kustomization.yaml"
        and not any(
            re.search(rf"(?<![\w/-]){re.escape(str(path.relative_to(folder)))}$", text, re.MULTILINE)
            for folder in FOLDERS.values()
            if path.is_relative_to(folder)
        )
    ]
    assert unused == []


@each_form
def test_every_object_says_where_it_is_and_what_it_is_part_of(form: str) -> None:
    for one in OBJECTS[form]:
        assert ("namespace" in one["metadata"]) == (one["kind"] not in NOT_NAMESPACED), identity(one)
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "berth", identity(one)
    apart = {identity(one) for one in OBJECTS[form] if one["metadata"].get("namespace", NAMESPACE) != NAMESPACE}
    assert {kind for kind, _, _ in apart} == {"Role", "RoleBinding"}


def test_nothing_of_others_is_installed() -> None:
    kinds = {one["kind"] for one in OBJECTS["base"] + OBJECTS["prod"]}
    assert "CustomResourceDefinition" not in kinds
    assert {one["metadata"]["name"] for one in of_kind("prod", "Namespace")} == {NAMESPACE}


@each_form
def test_every_service_has_a_manifest(form: str) -> None:
    others = OF_COMPONENTS if form == "dev" else set()
    apart = set() if form == "dev" else OF_TRIALS
    assert set(workloads(OBJECTS[form])) == {*SERVICES} - apart | {"nats"} | others
    for name in set(SERVICES) - OF_TRIALS:
        assert any(one["kind"] in {"Deployment", "StatefulSet"} for one in read(K8S / "base" / f"{name}.yaml"))


@each_workload
def test_a_container_is_probed_and_confined_and_asks_for_what_it_needs(form: str, name: str) -> None:
    spec = pod_spec(workloads(OBJECTS[form])[name])
    (container,) = spec["containers"]
    ports = {port["name"] for port in container["ports"]}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
        assert container[probe]["timeoutSeconds"] > 1
    resources = container["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert "memory" in resources["limits"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10_001}.items()
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"hostNetwork", "hostPID", "hostIPC"} & set(spec) == set()
    for first in spec.get("initContainers", []):
        assert (name, first["name"], first["image"]) == ("dispatcher", "streams", container["image"])
        assert first["securityContext"] == container["securityContext"]
        assert "memory" in first["resources"]["limits"]
    assert all(set(volume) - {"name"} <= {"configMap", "secret", "emptyDir"} for volume in spec["volumes"])
    repository = {"nats": "nats", **dict.fromkeys(OF_TRIALS, "berth-lab")}.get(name, "berth")
    assert re.fullmatch(rf"{repository}:[0-9]+\.[0-9]+\.[0-9]+(\.dev[0-9]+|-alpine)?", container["image"])


@each_workload
def test_pods_may_run_on_nodes_that_are_kept_for_their_like_and_come_first(form: str, name: str) -> None:
    spec = pod_spec(workloads(OBJECTS[form])[name])
    (priority,) = of_kind(form, "PriorityClass")
    if name in OF_TRIALS:
        assert {"tolerations", "priorityClassName"} & set(spec) == set()
        return
    assert spec["priorityClassName"] == priority["metadata"]["name"]
    assert (priority["value"], priority.get("globalDefault", False)) == (1_000_000_000, False)
    kept = {one["key"].removeprefix("node-role.kubernetes.io/") for one in spec["tolerations"]}
    assert kept == ({"infra"} if name == "nats" else {"control-plane", "master", "infra"})
    assert {(one["operator"], one["effect"]) for one in spec["tolerations"]} == {("Exists", "NoSchedule")}


@each_workload
def test_what_pods_mount_is_there(form: str, name: str) -> None:
    spec = pod_spec(workloads(OBJECTS[form])[name])
    claims = {
        claim["metadata"]["name"] for claim in workloads(OBJECTS[form])[name]["spec"].get("volumeClaimTemplates", [])
    }
    mounted = {mount["name"] for one in containers_of(spec) for mount in one["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]} | claims
    assert all(pod.files for pod in pods(form, name))


@each_workload
def test_more_than_one_pod_means_a_budget_and_more_than_one_node(form: str, name: str) -> None:
    one = workloads(OBJECTS[form])[name]
    labels = one["spec"]["template"]["metadata"]["labels"]
    assert one["spec"]["selector"]["matchLabels"] == labels
    budgets = [
        budget["spec"]
        for budget in of_kind(form, "PodDisruptionBudget")
        if budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ]
    spread = pod_spec(one).get("topologySpreadConstraints", [])
    if one["spec"]["replicas"] == 1:
        assert (budgets, spread) == ([], [])
        assert one["spec"]["strategy"] == {"type": "Recreate"}
        return
    (rule,) = spread
    assert (rule["topologyKey"], rule["labelSelector"]["matchLabels"]) == ("kubernetes.io/hostname", labels)
    assert (rule["whenUnsatisfiable"] == "DoNotSchedule") == ((form, name) == ("prod", "nats"))
    assert [budget["maxUnavailable"] for budget in budgets] == [1]


@each_service
def test_the_settings_of_a_service_are_what_it_reads(form: str, name: str, tmp_path: Path) -> None:
    for pod in pods(form, name):
        assert pod.command[:4] == ("python", "-m", PACKAGES[name], "--config")
        config = settings(pod, tmp_path)
        nats = workloads(OBJECTS[form])["nats"]
        scheme = "tls" if form == "prod" else "nats"
        servers = [f"{scheme}://{node.name}.{nats['spec']['serviceName']}:4222" for node in pods(form, "nats")]
        assert config.bus.url.split(",") == servers
        assert config.bus.replicas == len(servers) == 3
        (port,) = pod.container["ports"]
        assert (config.probes.host, config.probes.port) == ("0.0.0.0", port["containerPort"])  # noqa: S104  # in a container
        assert config.grace_s + GRACE_S < pod.grace_s
        assert {key.split("__")[0] for key in pod.environment if key.startswith("BERTH_")} <= variables()


def variables() -> set[str]:
    """Beginnings of variables that some service reads."""
    structs = [settings_type(PACKAGES[service]) for service in SERVICES]
    return {f"BERTH_{field.upper()}" for struct in structs if struct is not None for field in struct.__struct_fields__}


@each_form
def test_each_scorer_has_the_shard_of_its_ordinal(form: str, tmp_path: Path) -> None:
    scorers = [settings(pod, tmp_path) for pod in pods(form, "scorer")]
    assert all(isinstance(config, ScorerConfig) for config in scorers)
    assert [config.number() for config in scorers] == list(range(len(scorers)))
    for pod in pods(form, "dispatcher"):
        config = settings(pod, tmp_path)
        assert isinstance(config, DispatcherConfig)
        assert {scorer.shards for scorer in scorers} == {config.shards} == {len(scorers)}


@each_form
def test_the_binder_binds_in_kubernetes(form: str, tmp_path: Path) -> None:
    (pod,) = pods(form, "binder")
    assert settings(pod, tmp_path).kube is not None


def test_schedulers_of_whom_pods_are_taken_over(tmp_path: Path) -> None:
    found = {form: list(settings(pods(form, "inventory")[0], tmp_path).gangs.scheduler_names) for form in OBJECTS}
    assert found == {"base": ["berth"], "dev": ["berth"], "prod": ["berth"]}
    config = settings(pods("dev", "nodesim")[0], tmp_path)
    assert isinstance(config, NodesimConfig)
    assert config.agents.scheduler_names == ["berth"]


def test_the_simulated_cluster_keeps_pods_away_that_know_nothing_of_it(tmp_path: Path) -> None:
    (pod,) = pods("dev", "nodesim")
    config = settings(pod, tmp_path)
    assert isinstance(config, NodesimConfig)
    assert config.kube is not None
    assert 0 < config.agents.lease_s < 40
    cluster = parse_cluster(pod.files[str(config.topology_file)])
    assert len(cluster.nodes) == 20
    assert all([taint.effect for taint in node.taints] == ["NoSchedule"] for node in cluster.nodes)


@each_form
def test_nats_takes_its_configuration(form: str, tmp_path: Path) -> None:
    secrets = SECRETS | {"berth-nats-tls": documented_secret(tmp_path)}
    for pod in pods_of(OBJECTS[form], "nats", secrets=secrets):
        files = files_in(pod, tmp_path / pod.name)
        for file in files.values():
            file.write_text(file.read_text().replace("/etc/nats-tls", str(tmp_path / pod.name / "etc" / "nats-tls")))
        binary, dash_config, path, *name = pod.command
        assert (binary, dash_config, name) == ("nats-server", "--config", ["--name", pod.name])
        checked = subprocess.run(  # noqa: S603  # the server of our own environment
            [server_binary(), "-t", "-c", files[path]],
            env=pod.environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert checked.returncode == 0, checked.stderr
    text = pod.files["/etc/nats/server.conf"]
    assert "max_payload: 8MB" in text
    mounts = {mount["mountPath"] for mount in pod.container["volumeMounts"]}
    assert {re.search(rf"{name}: (/\w+)", text)[1] for name in ("store_dir",)} <= mounts  # type: ignore[index]  # it is there
    assert "pid_file: /run/nats/nats.pid" in text
    assert pod.container["lifecycle"]["preStop"]["exec"]["command"] == ["nats-server", "-sl=ldm=/run/nats/nats.pid"]
    duration_s = int(re.search(r"lame_duck_duration: (\d+)s", text)[1])  # type: ignore[index]  # it is there
    assert duration_s + GRACE_S < pod.grace_s


def test_users_of_nats_may_do_what_the_page_for_operators_says() -> None:
    text = (FOLDERS["prod"] / "nats" / "access.conf").read_text("utf-8")
    assert text.partition("\n")[2] == access_conf("default", USERS)
    assert pods("prod", "dispatcher")[0].environment["BERTH_BUS__CELL"] == "default"


@pytest.mark.parametrize("name", sorted(set(SERVICES) - OF_TRIALS))
def test_a_service_gets_its_own_password_and_no_other(name: str, tmp_path: Path) -> None:
    for pod in pods("prod", name):
        config = settings(pod, tmp_path)
        assert config.bus.user == name
        password = pod.files[str(config.bus.password_file)]
        assert password == SECRETS["berth-nats"][name]
        assert [text for text in pod.files.values() if text in SECRETS["berth-nats"].values()] == [password]
        for node in pods("prod", "nats"):
            assert node.environment[f"PASSWORD_{name.upper()}"] == f'"{password}"'


@pytest.mark.parametrize("name", sorted(set(SERVICES) - OF_TRIALS))
def test_a_service_trusts_the_authority_of_nats_and_has_no_key_of_it(name: str, tmp_path: Path) -> None:
    secret = SECRETS["berth-nats-tls"]
    for pod in pods("prod", name):
        config = settings(pod, tmp_path)
        assert pod.files[str(config.bus.tls_ca_file)] == secret["ca.crt"]
        assert set(pod.files.values()).isdisjoint({secret["tls.crt"], secret["tls.key"]})
        assert (config.bus.tls_cert_file, config.bus.tls_hostname) == (None, "")


def test_nobody_is_asked_for_a_password_in_a_trial(tmp_path: Path) -> None:
    for name in workloads(OBJECTS["dev"]):
        for pod in pods_of(OBJECTS["dev"], name):
            assert name == "nats" or settings(pod, tmp_path).bus.user == ""
            assert name == "nats" or settings(pod, tmp_path).bus.tls_ca_file is None


def test_only_pods_of_berth_reach_nats() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind("prod", "NetworkPolicy")}
    nats = workloads(OBJECTS["prod"])["nats"]["spec"]["template"]["metadata"]["labels"]
    assert policies["nats"]["podSelector"]["matchLabels"].items() <= nats.items()
    clients, nodes = policies["nats"]["ingress"]
    assert [port["port"] for rule in (clients, nodes) for port in rule["ports"]] == [4222, 6222]
    assert nodes["from"] == [{"podSelector": {"matchLabels": nats}}]
    ours = clients["from"][0]["podSelector"]["matchLabels"]
    for name in SERVICES:
        if name not in OF_TRIALS:
            labels = workloads(OBJECTS["prod"])[name]["spec"]["template"]["metadata"]["labels"]
            assert ours.items() <= labels.items()
            assert policies["berth"]["podSelector"]["matchLabels"].items() <= labels.items()


def selects(selector: Tree, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    asked = selector.get("matchExpressions", [])
    assert {one["operator"] for one in asked} <= {"In"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in asked
    )


def reached_by(name: str) -> set[tuple[str, int]]:
    """What the policies let the pods of a workload reach: pods of NATS or anything, and the port."""
    pods_of_nats = workloads(OBJECTS["prod"])["nats"]["spec"]["template"]["metadata"]["labels"]
    labels = workloads(OBJECTS["prod"])[name]["spec"]["template"]["metadata"]["labels"]
    specs = [one["spec"] for one in of_kind("prod", "NetworkPolicy")]
    rules = [
        rule
        for spec in specs
        if "Egress" in spec["policyTypes"] and selects(spec["podSelector"], labels)
        for rule in spec["egress"]
    ]
    for rule in rules:
        assert all(selects(one["podSelector"], pods_of_nats) for one in rule.get("to", []))
    return {("nats" if "to" in rule else "any", port["port"]) for rule in rules for port in rule["ports"]}


@pytest.mark.parametrize("name", sorted(workloads(OBJECTS["prod"])))
def test_pods_reach_what_they_need_and_nothing_else(name: str) -> None:
    ports = {port["name"]: port["port"] for port in read(K8S / "base" / "nats.yaml")[0]["spec"]["ports"]}
    wanted = {("nats", ports["cluster" if name == "nats" else "client"]), ("any", 53)}
    if name in WITH_API:
        wanted |= {("any", 443), ("any", 6443)}
    assert reached_by(name) == wanted


@each_form
def test_rights_are_few(form: str) -> None:
    for role in of_kind(form, "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], identity(role)
            assert set(rule["verbs"]) & {"bind", "escalate", "impersonate", "deletecollection"} == set()
            assert {"secrets", "serviceaccounts", "roles", "clusterroles", "pods/exec"} & set(
                rule["resources"]
            ) == set()
        if role["kind"] == "Role":
            assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"configmaps"}


@each_form
def test_each_role_is_bound_to_the_account_of_its_service(form: str) -> None:
    accounts = {one["metadata"]["name"] for one in of_kind(form, "ServiceAccount")}
    assert accounts == WITH_API - (OF_TRIALS if form != "dev" else set())
    roles = {identity(one) for one in of_kind(form, "Role", "ClusterRole")}
    bound = set()
    for binding in of_kind(form, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
        assert subject["name"] in accounts
        reference = binding["roleRef"]
        assert reference["name"].removesuffix("-volumes") == f"berth-{subject['name']}"
        bound.add((reference["kind"], binding["metadata"].get("namespace", ""), reference["name"]))
    assert bound == roles


@each_workload
def test_only_who_speaks_with_the_api_server_gets_a_token(form: str, name: str) -> None:
    spec = pod_spec(workloads(OBJECTS[form])[name])
    assert spec["automountServiceAccountToken"] is (name in WITH_API)
    assert spec.get("serviceAccountName") == (name if name in WITH_API else None)
