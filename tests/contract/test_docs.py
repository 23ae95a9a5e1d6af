"""The documents name what exists: files, make targets, streams with their limits."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from berth.runtime.config import constants_of
from berth.runtime.kube.config import KubeConfig
from berth.schemas.subjects import StreamName, Subjects
from tests.contract.reference_pages import settings_of
from tests.support.services import SERVICES

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*[ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")], *(ROOT / "docs").rglob("*.md")]
)
STREAMS = (ROOT / "docs" / "operate" / "streams.md").read_text("utf-8")

KUBERNETES_NAMES = {
    "berth/v1", "berth/step", "berth/made-by", "berth/per-namespace", "berth/simulated",
    "berth/checkpoint-at", "berth/preempt-notice-s", "berth/run-for", "berth/expected-start", "berth/queue-position",
}  # fmt: skip
"""An API version, annotations and a taint, which look like files."""
NOT_FOR_OPERATORS = {"fault_point"}  # tests of crashes set it

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def fields(struct: type[msgspec.Struct], prefix: str) -> dict[str, Any]:
    """Default of each field by its path, those of sections included."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, msgspec.Struct):
            found.update(fields(type(field.default), f"{prefix}{field.name}."))
        elif field.name not in NOT_FOR_OPERATORS:
            found[f"{prefix}{field.name}"] = field.default
    return found


def constants(struct: type[msgspec.Struct], prefix: str = "") -> dict[str, str]:
    """Former settings of a service by their paths, with the constants that they are."""
    found = {f"{prefix}{name}": value for name, value in constants_of(struct).items()}
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, msgspec.Struct):
            found |= constants(type(field.default), f"{prefix}{field.name}.")
    return found


def test_the_upgrade_page_names_each_former_setting_and_the_constant() -> None:
    section = (ROOT / "docs" / "upgrading.md").read_text("utf-8").partition("## Settings that are constants\n")[2]
    table = re.findall(r"^\| `([a-z_.]+)` \| (.+) \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    named = {(f"kube.{path}", "every service on Kubernetes", value) for path, value in constants_of(KubeConfig).items()}
    of: dict[tuple[str, str], list[str]] = {}
    for service in SERVICES:
        for path, value in constants(settings_of(service)).items():
            if not path.startswith("kube."):
                of.setdefault((path, value), []).append(f"`{service}`")
    assert set(table) == named | {(path, ", ".join(services), value) for (path, value), services in of.items()}


@each_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|\$ )make ([a-z -]+)", page.read_text("utf-8"))
    assert {target for words in named for target in words.split()} <= targets


@each_page
def test_files_of_the_tree_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:berth|schemas|services|docs|tests|\.ci)/[\w./-]+)`", page.read_text("utf-8")))
    assert [name for name in sorted(named - KUBERNETES_NAMES) if not (ROOT / name).exists()] == []


def test_what_is_installed_by_name_is_this_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        found
        for page in [*PAGES, *(ROOT / "berth").rglob("*.py")]
        for found in re.findall(r"pip install '?(berth[\w-]*)(?:\[(\w+)\])?", page.read_text("utf-8"))
    ]
    assert named, "no page says how an extra is installed"
    assert {name for name, _ in named} == {project["name"]}
    assert {extra for _, extra in named} - {""} <= project["optional-dependencies"].keys()


def test_the_hosted_workflow_runs_all_checks() -> None:
    path = ROOT / ".github" / "workflows" / "checks.yaml"
    workflow = yaml.load(path.read_text(), yaml.BaseLoader)  # texts alone: the key "on" is no boolean here
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert workflow["on"].keys() == {"push", "pull_request"}
    assert workflow["permissions"] == {"contents": "read"}
    named = [
        value
        for step in job["steps"]
        for key, value in step.get("with", {}).items()
        if "-file" in key or "-path" in key
    ]
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_stream_is_documented_with_its_limits() -> None:
    limits = dict(re.findall(r"^\| `([A-Z]+)` \| ([^|]*?) \|", STREAMS, re.MULTILINE))
    assert set(limits) == {name.value for name in StreamName}
    for spec in Subjects("any").streams():
        if spec.max_age_s:
            assert f"{spec.max_age_s // 86_400} days" in limits[spec.name]
        if spec.max_bytes:
            size = f"{spec.max_bytes >> 30} GiB" if spec.max_bytes >> 30 else f"{spec.max_bytes >> 20} MiB"
            assert size in limits[spec.name]


def test_what_is_in_this_release_is_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading = "Unreleased" if ".dev" in version else version
    assert f"## [{heading}]" in (ROOT / "CHANGELOG.md").read_text()
