"""The table of differences from the reference in ``docs/decisions/reference-parity.md``, made from the code."""

import re
from pathlib import Path
from typing import Final

from berth.core.parity import Differences
from tests.contract.struct_tables import as_markdown, fields_of, table

DECISIONS: Final = Path(__file__).parents[2] / "docs" / "decisions"
PAGE: Final = DECISIONS / "reference-parity.md"
_TABLE: Final = re.compile(r"^\|.*\n(?:\|.*\n)+", re.MULTILINE)


def parity_page() -> str:
    """The page, with a table that says what the code says."""
    pages = decision_index((DECISIONS / "README.md").read_text("utf-8"))
    rows = []
    for field in fields_of(Differences):
        decision, _, text = field.text.partition(": ")
        rows.append((f"[{decision}]({pages[decision]})", f"`{field.name}`", as_markdown(text)))
    *lines, _ = table(("decision", "name in the code", "what Berth does"), rows)
    page, count = _TABLE.subn("".join(f"{line}\n" for line in lines), PAGE.read_text("utf-8"))
    assert count == 1, f"{PAGE} has one table"
    return page


def decision_index(text: str) -> dict[str, str]:
    """Page of each decision, from the tables of the index."""
    rows = re.findall(r"^\| (`[^|]+`) \| \[[^]]+\]\(([\w.-]+)\) \|$", text, re.MULTILINE)
    return {name: page for names, page in rows for name in re.findall(r"`([^`]+)`", names)}
