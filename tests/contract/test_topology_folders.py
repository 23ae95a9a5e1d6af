"""A topology is a folder and its lines in the registries: without them everything else of the core imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BERTH = Path(__file__).parents[2] / "berth"
IMPORT_ALL = """
import importlib, pkgutil
import berth.core
for module in pkgutil.walk_packages(berth.core.__path__, "berth.core."):
    importlib.import_module(module.name)
from berth.core.topologies.registry import TOPOLOGIES
from berth.core.topologies.job_registry import JOB_TOPOLOGIES
assert [one.name for one in TOPOLOGIES] == [one.name for one in JOB_TOPOLOGIES]
print(*(topology.name for topology in TOPOLOGIES))
"""


@pytest.mark.parametrize(
    ("name", "jobs", "others"),
    [
        ("switches", "SwitchJobs", "superpods racks levels"),
        ("superpods", "SuperpodJobs", "switches racks levels"),
        ("racks", "RackJobs", "switches superpods levels"),
        ("levels", "LevelJobs", "switches superpods racks"),
    ],
)
def test_the_core_imports_without_a_topology(name: str, jobs: str, others: str, tmp_path: Path) -> None:
    shutil.copytree(BERTH, tmp_path / "berth", ignore=shutil.ignore_patterns("__pycache__"))
    topologies = tmp_path / "berth" / "core" / "topologies"
    shutil.rmtree(topologies / name)
    gone = (
        f"from berth.core.topologies.{name}.", f"    {name.capitalize()}(),", f"    {jobs}(),", f'    "{name}": ',
    )  # fmt: skip
    for registry in (topologies / f"{module}.py" for module in ("registry", "job_registry", "annotations")):
        lines = registry.read_text(encoding="utf-8").splitlines(keepends=True)
        registry.write_text("".join(line for line in lines if not line.startswith(gone)), encoding="utf-8")
    found = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-B", "-c", IMPORT_ALL], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (found.stdout.split(), found.stderr) == (others.split(), "")
