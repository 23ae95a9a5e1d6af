"""Tests that a change touches: ``python -m tests.support.touched FILE ...`` prints their paths.

The tests of a module lie in the folder of ``tests/unit`` with its path, or in the nearest folder above it. A test file
is its own; a file of ``tests/support`` brings the test files that import it, and a page or a manifest the tests that
read it. Those that need a Kubernetes API server or a browser are left out.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = ("tests/contract/test_docs.py", "tests/contract/test_words.py", "tests/contract/test_sources.py")
_TREE: Final = ("tests/contract/test_tidy.py",)
_ELSEWHERE: Final = ("tests/controllers/", "tests/kube/", "tests/page/")
_BY_START: Final = {
    "docs/": _PAGES,
    "k8s/": (
        "tests/contract/test_manifests.py",
        "tests/contract/test_small_manifests.py",
        "tests/contract/test_chart.py",
    ),
    "compose.yaml": ("tests/contract/test_compose.py",),
    "schemas/": ("tests/contract/test_schema_drift.py", "tests/contract/test_samples.py"),
    "bench/": ("tests/unit/bench",),
}


def touched_by(root: Path, changed: Iterable[str]) -> list[str]:
    """Files and folders of tests, those inside another one left out, by name.

    Args:
        root: The tree.
        changed: Paths below it, as ``git diff --name-only`` prints them; those of files that are gone count as well.
    """
    found: set[str] = set(_TREE)
    for name in changed:
        if name.startswith(_ELSEWHERE):
            continue
        found |= {one for start, tests in _BY_START.items() if name.startswith(start) for one in tests}
        found |= set(_PAGES) if name.endswith(".md") else set()
        if name.startswith("tests/"):
            found |= _of_test_file(root, name)
        elif name.endswith(".py"):
            found |= _mirror(root, PurePosixPath(name.removeprefix("berth/")))
    existing = {one for one in found if (root / one).exists()}
    return sorted(one for one in existing if not any(one.startswith(f"{other}/") for other in existing))


def _of_test_file(root: Path, name: str) -> set[str]:
    path = PurePosixPath(name)
    if path.name.startswith("test_"):
        return {name}
    imports = re.compile(rf"^from {re.escape('.'.join(path.with_suffix('').parts))} import ", re.MULTILINE)
    return {
        str(test.relative_to(root))
        for test in (root / "tests").rglob("test_*.py")
        if not str(test.relative_to(root)).startswith(_ELSEWHERE) and imports.search(test.read_text("utf-8"))
    }


def _mirror(root: Path, module: PurePosixPath) -> set[str]:
    """The tests of a module, or those of the nearest package above it that has some."""
    own = f"tests/unit/{module.parent}/test_{module.name}"
    folders = (str(PurePosixPath("tests/unit") / parent) for parent in module.parents if parent.name)
    nearest = next((one for one in folders if (root / one).is_dir()), "")
    return {one for one in (own, nearest) if one}


if __name__ == "__main__":
    sys.stdout.write("\n".join(touched_by(ROOT, sys.argv[1:])) + "\n")
