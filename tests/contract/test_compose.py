"""``compose.yaml`` and ``Dockerfile`` name what exists, and their settings are settings of the services.

Excluded: whether the image builds and the containers start, which needs a container runtime. That its commands work
together is shown in ``tests/e2e/test_compose_cell.py`` and ``tests/kube/test_compose_on_kubernetes.py``.
"""

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.runtime.config import ServiceConfig, load
from tests.support.compose import Planned, plan
from tests.support.services import PACKAGES

ROOT = Path(__file__).parents[2]
FILE = (ROOT / "compose.yaml").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(FILE)
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}
MONITORING = {name for name, service in COMPOSE["services"].items() if "monitoring" in service.get("profiles", [])}
NATS = {
    name: service for name, service in COMPOSE["services"].items() if "build" not in service and name not in MONITORING
}
ON_KUBERNETES = {name for name, service in COMPOSE["services"].items() if "kubernetes" in service.get("profiles", [])}
CELL = [name for name in COMPOSE["services"] if name not in MONITORING]
BY_DEFAULT = [name for name in CELL if name not in ON_KUBERNETES]
KUBECONFIG = "/etc/berth/kubeconfig"

each_of_ours = pytest.mark.parametrize("name", sorted(OURS))


def module_of(name: str) -> str:
    python, dash_m, module, dash_config, _ = OURS[name]["command"]
    assert (python, dash_m, dash_config) == ("python", "-m", "--config")
    return str(module)


def settings_text(name: str) -> str:
    """Content of the file that the command line names."""
    path = OURS[name]["command"][-1]
    (source,) = [config["source"] for config in OURS[name]["configs"] if config["target"] == path]
    return str(COMPOSE["configs"][source]["content"])


def settings_type(module: str) -> type[ServiceConfig] | None:
    """The Struct of a service's settings; None while the service has no settings yet."""
    if not (ROOT / module.replace(".", "/") / "config.py").is_file():
        return None
    found = importlib.import_module(f"{module}.config")
    (struct,) = [
        value
        for value in vars(found).values()
        if isinstance(value, type) and issubclass(value, ServiceConfig) and value.__module__ == found.__name__
    ]
    return struct


@each_of_ours
def test_a_service_of_compose_is_a_service_of_the_tree(name: str) -> None:
    assert module_of(name) == PACKAGES[name.split("-", maxsplit=1)[0]]


def test_every_service_of_the_tree_is_in_compose() -> None:
    assert {module_of(name) for name in OURS} == set(PACKAGES.values())


def test_the_simulated_cluster_is_started_by_default_and_a_kubernetes_cluster_when_its_profile_is_asked_for() -> None:
    assert {module_of(name) for name in ON_KUBERNETES} == {
        f"berth.services.{service}" for service in ("inventory", "health", "summary", "binder")
    }
    assert {"binder", "nodesim"} <= set(BY_DEFAULT)
    assert [OURS[name]["profiles"] for name in sorted(ON_KUBERNETES)] == [["kubernetes"]] * len(ON_KUBERNETES)
    (line,) = [line for line in FILE.splitlines() if line.startswith("#") and "--profile kubernetes" in line]
    assert line.removeprefix("#").strip() == (
        "docker compose --profile kubernetes up --build --scale binder=0 --scale nodesim=0"
    )


@pytest.mark.parametrize("name", sorted(ON_KUBERNETES))
def test_a_service_on_kubernetes_reads_the_kubeconfig_that_is_mounted(name: str, tmp_path: Path) -> None:
    (mount,) = OURS[name]["volumes"]
    assert mount == {
        "type": "bind",
        "source": "${KUBECONFIG:-~/.kube/config}",
        "target": KUBECONFIG,
        "read_only": True,
        "bind": {"create_host_path": False},
    }
    assert tomllib.loads(settings_text(name))["kube"] == {"kubeconfig": KUBECONFIG}
    for variables, path in (({"KUBECONFIG": "/srv/kubeconfig"}, "/srv/kubeconfig"), ({}, Path.home() / ".kube/config")):
        found = planned(FILE, tmp_path, **variables)[name]
        settings = tomllib.loads(Path(found.command[-1]).read_text("utf-8"))
        assert settings["kube"] == {"kubeconfig": str(path)}


def test_a_service_of_the_simulated_cluster_sees_no_kubeconfig() -> None:
    for name in sorted(set(OURS) - ON_KUBERNETES):
        assert "volumes" not in OURS[name]
        assert "kube" not in tomllib.loads(settings_text(name))


@each_of_ours
def test_the_settings_of_a_service_are_what_it_reads(name: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(settings_text(name))
    tomllib.loads(path.read_text())
    struct = settings_type(module_of(name))
    if struct is not None:
        config = load(struct, path, OURS[name]["environment"])
        assert config.bus.url == ",".join(f"nats://{node}:4222" for node in NATS)
        assert config.bus.replicas == len(NATS) == 3
        assert f'"http://127.0.0.1:{config.probes.port}/readyz"' in OURS[name]["healthcheck"]["test"][-1]
        patience_s = int(OURS[name]["stop_grace_period"].removesuffix("s"))
        assert config.grace_s + 5 < patience_s


def test_every_file_and_source_that_compose_names_exists() -> None:
    used = {config["source"] for service in COMPOSE["services"].values() for config in service.get("configs", [])}
    assert used == set(COMPOSE["configs"])
    assert [
        config["file"]
        for config in COMPOSE["configs"].values()
        if "file" in config and not (ROOT / config["file"]).is_file()
    ] == []


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    nats = [f"127.0.0.1:{4222 + number}:4222" for number in range(len(NATS))]
    assert ports == [*nats, "127.0.0.1:8222:8222", "127.0.0.1:9090:9090", "127.0.0.1:3000:3000"]


def test_nodes_of_nats_know_each_other_and_keep_what_they_store_apart() -> None:
    content = COMPOSE["configs"]["nats"]["content"]
    routes = content.partition("routes: [")[2].partition("]")[0].split()
    assert routes == [f"nats://{node}:6222" for node in NATS]
    for node, service in NATS.items():
        assert service["command"][-2:] == ["--name", node]
        assert service["volumes"] == [f"{node}:/data"]
    assert set(COMPOSE["volumes"]) == set(NATS)


@each_of_ours
def test_a_service_may_do_nothing_but_its_work_and_waits_for_nats(name: str) -> None:
    service = OURS[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["depends_on"] == {node: {"condition": "service_healthy"} for node in NATS}


def planned(text: str, folder: Path, **variables: str) -> dict[str, Planned]:
    return {one.name: one for one in plan(text, folder, profiles=["kubernetes"], variables=variables)}


def read(folder: Path) -> dict[str, str]:
    """Files that were mounted, by their path below the folder, without the ports, which differ each time."""
    return {
        str(path.relative_to(folder)): path.read_text("utf-8").replace(str(folder), "")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('/etc/berth/binder.toml"]', '/etc/berth/binder.toml", "--verbose"]', ["binder"]),
        ('/etc/berth/health.toml"]', '/etc/berth/health.toml", "--verbose"]', ["health"]),
        ("BERTH_BUS__CELL: demo", "BERTH_BUS__CELL: other", list(OURS)),
        ('"--name", "nats-1"', '"--name", "nats-9"', ["nats-1"]),
        ("    shards = 2\n  binder:", "    shards = 5\n  binder:", []),
        ("max_payload: 8MB", "max_payload: 4MB", []),
        ("docs/examples/cluster.yaml", "berth/lab/cells/examples/demo-cluster.yaml", []),
        ("restart: unless-stopped\n  stop", 'restart: "no"\n  stop', list(OURS)),
        ("/readyz", "/livez", list(OURS)),
    ],
)
def test_what_is_started_without_containers_follows_the_file(
    tmp_path: Path, old: str, new: str, changed: list[str]
) -> None:
    assert FILE.count(old) == 1
    before, after = planned(FILE, tmp_path / "a"), planned(FILE.replace(old, new), tmp_path / "b")
    assert list(before) == list(after) == CELL

    def shape(one: Planned, folder: Path) -> str:
        return re.sub(r"127\.0\.0\.1:\d+|_PORT': '\d+", "", str(one)).replace(str(folder), "")

    differ = [name for name in before if shape(before[name], tmp_path / "a") != shape(after[name], tmp_path / "b")]
    assert differ == changed
    if not changed:
        addresses = re.compile(r"127\.0\.0\.1:\d+")
        texts = [{path: addresses.sub("", text) for path, text in read(tmp_path / name).items()} for name in ("a", "b")]
        assert texts[0] != texts[1]


def test_services_with_a_profile_are_started_only_when_it_is_asked_for(tmp_path: Path) -> None:
    assert [one.name for one in plan(FILE, tmp_path)] == BY_DEFAULT
    assert [one.name for one in plan(FILE, tmp_path, profiles=["other"])] == BY_DEFAULT
    freed = FILE.replace("  profiles: [kubernetes]\n", "")
    assert freed != FILE
    assert [one.name for one in plan(freed, tmp_path)] == CELL


def test_what_is_started_without_containers_reaches_the_ports_of_the_others(tmp_path: Path) -> None:
    found = planned(FILE, tmp_path)
    url = found["dispatcher"].environment["BERTH_BUS__URL"]
    listens = [
        re.findall(r"^listen: (\S+)", (tmp_path / node / "etc/nats/server.conf").read_text(), re.MULTILINE)
        for node in NATS
    ]
    assert url.split(",") == [f"nats://{address}" for (address,) in listens]
    assert len({one.environment["BERTH_PROBES__PORT"] for name, one in found.items() if name in OURS}) == len(OURS)


def test_prometheus_reads_every_service_of_the_simulated_cluster_and_the_exporter_every_node_of_nats() -> None:
    assert set(MONITORING) == {"nats-exporter", "prometheus", "grafana"}
    config = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])
    targets = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in config["scrape_configs"]
        if job["job_name"] != "berth-nats"
    }
    ours = [name for name in BY_DEFAULT if name in OURS]
    assert sorted(target for found in targets.values() for target in found) == sorted(f"{name}:8080" for name in ours)
    for job, found in targets.items():
        assert {f"berth-{module_of(target.partition(':')[0]).split('.')[-1]}" for target in found} == {job}
    exporter = COMPOSE["services"]["nats-exporter"]
    assert exporter["command"][-3:] == [f"http://{node}:8222" for node in NATS]
    assert "http: 0.0.0.0:8222" in COMPOSE["configs"]["nats"]["content"]
    mounted = {config["source"]: config["target"] for config in COMPOSE["services"]["prometheus"]["configs"]}
    assert config["rule_files"] == [mounted["rules"]]
    assert all(re.search(r":v?\d+\.\d+\.\d+$", COMPOSE["services"][name]["image"]) for name in MONITORING)


def test_the_shards_of_compose_are_all_there_once() -> None:
    scorers = [tomllib.loads(settings_text(name)) for name in OURS if module_of(name) == "berth.services.scorer"]
    shards = tomllib.loads(settings_text("dispatcher"))["shards"]
    assert sorted(scorer["shard"] for scorer in scorers) == list(range(shards))
    assert {scorer["shards"] for scorer in scorers} == {shards}


def test_the_image_copies_what_exists_and_what_is_let_through() -> None:
    allowed = {
        line.removeprefix("!").rstrip("/")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert copied == allowed
    assert [source for source in sorted(copied) if not (ROOT / source).exists()] == []
