"""Bill of materials of the image: its base image and the packages that are installed in it, as CycloneDX 1.6.

It follows from ``pyproject.toml``, ``requirements-image.lock`` and the Dockerfile, so that equal trees have equal
bills: there is no time and no serial number. Packages of the operating system are those of the base image.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_BASE: Final = re.compile(r"^FROM (\S+):(\S+)(?: AS \w+)?$", re.MULTILINE)


def name_of() -> str:
    """Name of the file."""
    return f"berth-{_project()['version']}.cdx.json"


def bill() -> str:
    """The bill, as JSON."""
    project = _project()
    itself = {
        **_package(project["name"], project["version"]),
        "type": "application",
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
    }
    (base, tag) = _BASE.findall((ROOT / "Dockerfile").read_text("utf-8"))[-1]
    image = {"type": "container", "name": base, "version": tag, "purl": f"pkg:docker/{base}@{tag}"}
    packages = sorted(_PINNED.findall((ROOT / "requirements-image.lock").read_text("utf-8")))
    components = [image | {"bom-ref": image["purl"]}, *(_package(name, version) for name, version in packages)]
    tree = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
        "dependencies": [{"ref": itself["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]}],
    }
    return json.dumps(tree, indent=1) + "\n"


def _package(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found
