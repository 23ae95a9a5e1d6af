"""The page of the differences from the reference that a setting takes back, and the index of decisions."""

import re
from pathlib import Path
from typing import Final

from berth.core.parity import Differences
from tests.contract.struct_tables import WRITTEN, as_markdown, fields_of, filled, table

DECISIONS: Final = Path(__file__).parents[2] / "docs" / "decisions"
DIFFERENCES: Final = "differences.md"


def parity_page() -> str:
    """The page, with what the code says of each difference."""
    pages = decision_index()
    rows = []
    for field in fields_of(Differences):
        decision, _, text = field.text.partition(": ")
        rows.append((f"[{decision}](../decisions/{pages[decision]})", f"`{field.name}`", as_markdown(text)))
    lines = [
        "# Reference parity",
        "",
        *filled(
            f"{WRITTEN} With `decisions.reference_parity = true` a dispatcher decides as the reference implementation does"
            " in each of these differences; without it, as the table says. What is random or wrong for the cluster in the"
            " reference is not restored: ties, early stops, crashes, incomplete plans, chips that are given twice."
        ),
        "",
        *table(("decision", "name in `berth/core/parity.py`", "what Berth does"), rows),
    ]
    return "\n".join(lines).rstrip() + "\n"


def decision_index() -> dict[str, str]:
    """Page of each decision: from the tables of the index, and from the first column of the page of differences."""
    index = (DECISIONS / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \| \[[^]]+\]\(([\w.-]+)\) \|$", index, re.MULTILINE)
    rows += [(name, DIFFERENCES) for name, *_ in differences()]
    return {name: page for names, page in rows for name in re.findall(r"`([^`]+)`", names)}


def differences() -> list[list[str]]:
    """Cells of each row of the page of differences: names, what the reference does, what Berth does, tests."""
    lines = (DECISIONS / DIFFERENCES).read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
