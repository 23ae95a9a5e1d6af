"""Real job traces, which are no part of the tree: where they lie, and what a test does without them."""

import gzip
import os
from pathlib import Path
from typing import Final

import pytest

FILES: Final = {"kalos": "acme-kalos/kalos.csv.gz", "philly": "philly/philly.csv.gz"}


def traces_folder() -> Path:
    """Folder of the traces: the variable ``BERTH_TRACES``, else ``shared/traces`` beside the checkout."""
    named = os.environ.get("BERTH_TRACES")  # noqa: TID251  # a test tool; no service reads this
    return Path(named) if named else Path(__file__).parents[3] / "shared" / "traces"


def trace_lines(name: str) -> list[str]:
    """Lines of a real trace; the test that asks is skipped, and says why, where there is none."""
    path = traces_folder() / FILES[name]
    if not path.is_file():
        pytest.skip(f"no trace at {path}; the variable BERTH_TRACES names the folder")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.readlines()
