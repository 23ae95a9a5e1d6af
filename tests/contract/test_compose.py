"""``compose.yaml`` and ``Dockerfile`` name what exists, and their settings are settings of the services.

Excluded: whether the image builds and the containers start, which needs a container runtime.
"""

import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.runtime.config import ServiceConfig, load

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "nats"}

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
    package, service = module_of(name).split(".")
    assert package == "services"
    assert (ROOT / package / service / "__init__.py").is_file()
    assert name.split("-", maxsplit=1)[0] == service


def test_every_service_of_the_tree_is_in_compose() -> None:
    present = {path.parent.name for path in (ROOT / "services").glob("*/__init__.py")}
    assert {module_of(name).split(".")[1] for name in OURS} == present


@each_of_ours
def test_the_settings_of_a_service_are_what_it_reads(name: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(settings_text(name))
    tomllib.loads(path.read_text())
    struct = settings_type(module_of(name))
    if struct is not None:
        config = load(struct, path, OURS[name]["environment"])
        assert config.bus.url == "nats://nats:4222"
        patience_s = int(OURS[name]["stop_grace_period"].removesuffix("s"))
        assert config.grace_s + 5 < patience_s


def test_every_file_and_source_that_compose_names_exists() -> None:
    used = {config["source"] for service in COMPOSE["services"].values() for config in service["configs"]}
    assert used == set(COMPOSE["configs"])
    assert [
        config["file"]
        for config in COMPOSE["configs"].values()
        if "file" in config and not (ROOT / config["file"]).is_file()
    ] == []


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:4222:4222"]


def test_the_shards_of_compose_are_all_there_once() -> None:
    scorers = [tomllib.loads(settings_text(name)) for name in OURS if module_of(name) == "services.scorer"]
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
