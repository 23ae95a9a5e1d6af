"""What a release consists of: the bill of materials of the image, and the workflow that builds all of it from a tag.

Excluded: whether the image can be built, which needs a container runtime, and whether the workflow runs, which needs
its host.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from tests.release.materials import bill, name_of

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW: Final[dict[str, Any]] = yaml.load(
    (ROOT / ".github" / "workflows" / "release.yaml").read_text("utf-8"), yaml.BaseLoader
)
MAKEFILE: Final = (ROOT / "Makefile").read_text("utf-8")


def steps() -> list[dict[str, Any]]:
    (job,) = WORKFLOW["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def test_the_bill_lists_each_package_of_the_image_once() -> None:
    tree = json.loads(bill())
    packages = [one["purl"] for one in tree["components"] if one["type"] == "library"]
    lock = (ROOT / "requirements-image.lock").read_text("utf-8")
    pins = [line.split()[0] for line in lock.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    assert packages == [
        f"pkg:pypi/{pin.replace('==', '@')}" for pin in sorted(pins, key=lambda pin: pin.split("==")[0])
    ]
    assert len(packages) == len(set(packages)) > 10


def test_the_bill_names_the_product_its_licence_and_the_base_image() -> None:
    tree = json.loads(bill())
    assert (tree["bomFormat"], tree["specVersion"]) == ("CycloneDX", "1.6")
    itself = tree["metadata"]["component"]
    assert (itself["name"], itself["version"]) == (PROJECT["name"], PROJECT["version"])
    assert itself["licenses"] == [{"license": {"id": PROJECT["license"]}}]
    (base,) = [one for one in tree["components"] if one["type"] == "container"]
    assert f"FROM {base['name']}:{base['version']} AS base\n" in (ROOT / "Dockerfile").read_text("utf-8")
    assert tree["dependencies"] == [
        {"ref": itself["bom-ref"], "dependsOn": [one["bom-ref"] for one in tree["components"]]}
    ]
    assert name_of() == f"berth-{PROJECT['version']}.cdx.json"


def test_labels_of_the_image_are_those_of_the_product() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', text))
    assert labels == {
        "title": "Berth",
        "description": PROJECT["description"].partition(",")[0],
        "licenses": PROJECT["license"],
        "version": "$VERSION",
        "revision": "$REVISION",
    }
    for argument in ("VERSION", "REVISION"):
        assert f"--build-arg {argument}=" in MAKEFILE


def test_a_tag_alone_starts_the_workflow_which_may_write_releases_and_packages_alone() -> None:
    assert WORKFLOW["on"] == {"push": {"tags": ["v*"]}}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    (job,) = WORKFLOW["jobs"].values()
    assert job["permissions"] == {"contents": "write", "packages": "write"}


def test_the_workflow_builds_with_targets_and_files_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    made = [words for step in steps() for words in re.findall(r"^make (.+)$", step.get("run", ""), re.MULTILINE)]
    named = {word for words in made for word in words.split() if "=" not in word}
    assert named == {"wheel", "chart", "image"} <= targets
    files = [value for step in steps() for key, value in step.get("with", {}).items() if key.endswith("-file")]
    assert files
    assert [name for name in files if not (ROOT / name).is_file()] == []
