"""The components of the gateway in ``k8s/gateway``, beside each overlay or in it: they hold together with it.

Excluded: whether kustomize and an API server take them, which ``tests/kube/test_chart.py`` tries.
"""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from berth.lab.servers.nats_server import server_binary
from berth.runtime.config import load
from berth.services.gateway.config import GatewayConfig, check, is_loopback
from tests.contract.test_manifests import FOLDERS, K8S, OBJECTS, SECRETS, USERS, files_in, selects
from tests.support.certificates import documented_secret
from tests.support.kustomize import Tree, identity, pod_spec, render
from tests.support.nats_rights import access_conf
from tests.support.pods import Pod, pods_of, workloads

GATEWAY: Final = K8S / "gateway"
SMALL: Final = K8S / "overlays" / "small"
WITH: Final = {"dev": OBJECTS["dev"], "prod": render(FOLDERS["prod"], [GATEWAY, GATEWAY / "users"])}
"""A trial has it of itself."""
IN_A_SMALL_CELL: Final = render(SMALL, [GATEWAY, GATEWAY / "network"])
OF_GATEWAY: Final = "0of99"
TOKENS: Final = '[{"identity": "portal", "sha256": "' + "0a" * 32 + '"}]'
ALL_SECRETS: Final = {
    **SECRETS,
    "berth-nats": {**SECRETS["berth-nats"], "gateway": OF_GATEWAY},
    "berth-gateway": {"tokens": TOKENS},
}

each_form = pytest.mark.parametrize("form", sorted(WITH))


def pods(form: str, name: str = "gateway") -> list[Pod]:
    return pods_of(WITH[form], name, secrets=ALL_SECRETS)


def config_of(pod: Pod, folder: Path) -> GatewayConfig:
    return load(GatewayConfig, files_in(pod, folder)[pod.command[-1]], pod.environment)


def test_the_components_add_the_gateway_and_change_nats_alone() -> None:
    # a ConfigMap that changes has another name, and so have those who read it
    changed = [one for one in WITH["prod"] if one not in OBJECTS["prod"]]
    added = {identity(one) for one in changed}
    kinds = {"Deployment", "Service", "PodDisruptionBudget", "ConfigMap", "NetworkPolicy"}
    assert {kind for kind, _, name in added if "gateway" in name} == kinds
    others = {
        name.rpartition("-")[0] if kind == "ConfigMap" else name for kind, _, name in added if "gateway" not in name
    }
    assert others == {"nats"}
    for one in changed:
        assert one["metadata"]["namespace"] == "berth-system"
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "berth"


def test_in_a_trial_it_asks_for_no_token_and_a_port_forward_alone_reaches_it(tmp_path: Path) -> None:
    for pod in pods_of(WITH["dev"], "gateway"):
        config = config_of(pod, tmp_path)
        assert (config.access, config.tokens, is_loopback(config.host)) == ("open", [], True)


@each_form
def test_its_settings_are_what_it_reads(form: str, tmp_path: Path) -> None:
    (service,) = [one["spec"] for one in WITH[form] if (one["kind"], one["metadata"]["name"]) == ("Service", "gateway")]
    for pod in pods(form):
        assert pod.command[:4] == ("python", "-m", "berth.services.gateway", "--config")
        config = config_of(pod, tmp_path)
        check(config)
        ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
        assert ports == {"probes": config.probes.port, "http": config.port}
        assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(config.port, "http")]
        assert selects({"matchLabels": service["selector"]}, labels(form, "gateway"))
        assert [token.identity for token in config.tokens] == (["portal"] if form == "prod" else [])
        assert config.grace_s + 5 < pod.grace_s
        assert (config.bus.user, config.bus.tls_ca_file is not None) == (
            ("gateway", True) if form == "prod" else ("", False)
        )


def labels(form: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = workloads(WITH[form])[name]["spec"]["template"]["metadata"]["labels"]
    return found


@each_form
def test_its_pods_are_like_those_of_api(form: str) -> None:
    own, other = (pod_spec(workloads(WITH[form])[name]) for name in ("gateway", "api"))
    same = ("securityContext", "automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds",
            "priorityClassName", "tolerations")  # fmt: skip
    for key in same:
        assert own[key] == other[key], key
    for key in ("image", "livenessProbe", "readinessProbe", "securityContext", "envFrom"):
        assert own["containers"][0][key] == other["containers"][0][key], key
    assert own["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in own


def test_nats_has_the_users_of_the_overlay_and_the_gateway() -> None:
    text = (GATEWAY / "users" / "access.conf").read_text("utf-8")
    assert text.partition("\n")[2] == access_conf("default", [*USERS, "gateway"])


def test_nats_takes_its_configuration_with_the_user(tmp_path: Path) -> None:
    secrets = ALL_SECRETS | {"berth-nats-tls": documented_secret(tmp_path)}
    for pod in pods_of(WITH["prod"], "nats", secrets=secrets):
        assert pod.environment["PASSWORD_GATEWAY"] == f'"{OF_GATEWAY}"'
        files = files_in(pod, tmp_path / pod.name)
        for file in files.values():
            file.write_text(file.read_text().replace("/etc/nats-tls", str(tmp_path / pod.name / "etc" / "nats-tls")))
        checked = subprocess.run(  # noqa: S603  # the server of our own environment
            [server_binary(), "-t", "-c", files[pod.command[2]]],
            env=pod.environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert checked.returncode == 0, checked.stderr


def test_it_gets_its_own_password_and_no_other(tmp_path: Path) -> None:
    for pod in pods("prod"):
        config = config_of(pod, tmp_path)
        password = pod.files[str(config.bus.password_file)]
        assert (
            [text for text in pod.files.values() if text in ALL_SECRETS["berth-nats"].values()]
            == [password]
            == [OF_GATEWAY]
        )
        assert pod.files[str(config.bus.tls_ca_file)] == SECRETS["berth-nats-tls"]["ca.crt"]


def test_it_is_reached_on_its_port_and_reaches_nats_alone() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in WITH["prod"] if one["kind"] == "NetworkPolicy"}
    own = {name: spec for name, spec in policies.items() if selects(spec["podSelector"], labels("prod", "gateway"))}
    assert sorted(own) == ["berth", "berth-gateway"]
    ingress = [port["port"] for spec in own.values() for rule in spec["ingress"] for port in rule["ports"]]
    assert sorted(ingress) == [8080, 8222]
    assert "Egress" not in own["berth-gateway"]["policyTypes"]
    assert not any(
        selects(policies["berth-gateway"]["podSelector"], labels("prod", name))
        for name in workloads(WITH["prod"])
        if name != "gateway"
    )


def test_a_small_cell_gets_the_gateway_of_the_base_and_the_policy_of_production() -> None:
    def named_gateway(objects: list[Tree]) -> dict[Any, Tree]:
        return {identity(one): one for one in objects if "gateway" in one["metadata"]["name"] and "data" not in one}

    def without_environment(objects: dict[Any, Tree]) -> dict[Any, str]:
        return {at: re.sub(r"berth-environment-\w+", "", str(one)) for at, one in objects.items()}

    wanted = named_gateway(render(FOLDERS["base"], [GATEWAY])) | {
        at: one for at, one in named_gateway(WITH["prod"]).items() if at[0] == "NetworkPolicy"
    }
    assert without_environment(named_gateway(IN_A_SMALL_CELL)) == without_environment(wanted)
    alone = {identity(one) for one in render(SMALL)}
    assert {identity(one) for one in IN_A_SMALL_CELL} - alone == {
        *wanted,
        *(identity(one) for one in IN_A_SMALL_CELL if one["metadata"]["name"].startswith("berth-gateway-")),
    }


def test_the_page_makes_the_secrets_that_it_needs() -> None:
    section = (K8S.parent / "docs" / "howto" / "open-the-gateway.md").read_text("utf-8")
    assert "create secret generic berth-gateway" in section
    assert re.search(r"--from-literal=tokens=", section)
    assert "k8s/gateway/users" in section
