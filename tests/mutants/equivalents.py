"""Generated mutants that no test can notice, each with the reason.

They are known by file, kind and changed lines, so that a renamed function keeps them; one whose lines are others is
looked at again.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.outcomes import Mutant

FILE: Final = Path(__file__).with_name("equivalents.toml")


class Equivalent(NamedTuple):
    """A mutant by what it changes, and why nothing notices it."""

    path: str
    kind: str
    old: str
    new: str
    why: str


def equivalents_in(file: Path = FILE) -> list[Equivalent]:
    """Those of a file.

    Raises:
        KeyError: One lacks something.
    """
    tables = tomllib.loads(file.read_text("utf-8")).get("mutant", [])
    return [Equivalent(*(table[field] for field in Equivalent._fields)) for table in tables]


def reasons_for(mutants: Iterable[Mutant], equivalents: Iterable[Equivalent]) -> dict[str, str]:
    """Why some of the mutants are equivalent, by name."""
    known = {one[:4]: one.why for one in equivalents}
    keys = {mutant.name: (mutant.path, kind_of(mutant.name), mutant.old, mutant.new) for mutant in mutants}
    return {name: known[key] for name, key in keys.items() if key in known}


def kind_of(name: str) -> str:
    """Kind of a generated mutant."""
    return name.rpartition("::")[2].rpartition("-")[0]
