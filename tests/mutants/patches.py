"""Patches of this folder: what a mutant changes, and which tests kill it.

A patch is a unified diff below a head of ``Key: value`` lines, which ``git apply`` ignores; a line without a key goes
on with the one before it. ``Mutant:`` says what the change does. Then come either ``Killed-by:`` lines, each naming a
test that kills it alone, or ``Equivalent:`` with the reason why no test can. ``Simulated: seed`` says that a seed of
the simulation must kill it as well, ``Simulated: seed with VERB, VERB`` that seeds with these events are tried first,
and ``Simulated: test, REASON`` why no seed can.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).parent
_KEYS: Final = ("Mutant", "Killed-by", "Equivalent", "Simulated")
_DIFF: Final = ("diff --git ", "--- ")
_TEST: Final = re.compile(r"[\w./-]+\.py(?:::\w+)+(?:\[.+\])?")
_SIMULATED: Final = re.compile(r"seed(?: with ([a-z, -]+))?|test, (.+)")
_CHANGED: Final = re.compile(r"^(?:---|\+\+\+) [ab]/(\S+)", re.MULTILINE)


class PatchError(Exception):
    """A patch whose head or diff cannot be meant."""


class Mutant(msgspec.Struct, frozen=True):
    """A change of the product.

    Attributes:
        name: File name of its patch, without the ending.
        says: What the change does.
        killed_by: Tests, each of which kills it alone, by their pytest id.
        equivalent: Why nothing can notice it; empty for one that tests kill.
        changes: Files that it changes.
        patch: The whole text.
        is_simulated: Whether the simulation is asked about it, too.
        verbs: Events of the seeds that are likely to.
        unseen: Why no seed of the simulation can notice it; empty if one must.
    """

    name: str
    says: str
    killed_by: tuple[str, ...]
    equivalent: str
    changes: tuple[str, ...]
    patch: str
    is_simulated: bool = False
    verbs: tuple[str, ...] = ()
    unseen: str = ""


def mutants_in(folder: Path) -> list[Mutant]:
    """All mutants of a folder, by name.

    Raises:
        PatchError: One cannot be meant.
    """
    return [mutant_of(path.stem, path.read_text("utf-8")) for path in sorted(folder.glob("*.patch"))]


def mutant_of(name: str, patch: str) -> Mutant:
    """The mutant of a patch.

    Raises:
        PatchError: The head lacks something or contradicts itself, or there is no diff below it.
    """
    lines = patch.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith(_DIFF)), len(lines))
    head = _head(name, lines[:start])
    says, killed_by, equivalent, simulated = (head[key] for key in _KEYS)
    if len(says) != 1:
        raise PatchError(f"{name}: {len(says)} lines Mutant: expected 1")
    if bool(killed_by) == bool(equivalent) or len(equivalent) > 1:
        raise PatchError(f"{name}: expected lines Killed-by or one line Equivalent")
    wrong = [test for test in killed_by if not _TEST.fullmatch(test)]
    if wrong:
        raise PatchError(f"{name}: Killed-by {wrong[0]}: expected a test such as tests/unit/test_x.py::test_y")
    verbs, unseen = _simulated(name, simulated, killed_by)
    changes = tuple(dict.fromkeys(_CHANGED.findall("\n".join(lines[start:]))))
    if not changes:
        raise PatchError(f"{name}: no diff of a file")
    return Mutant(
        name=name,
        says=says[0],
        killed_by=tuple(killed_by),
        equivalent="".join(equivalent),
        changes=changes,
        patch=patch,
        is_simulated=bool(simulated),
        verbs=verbs,
        unseen=unseen,
    )


def _simulated(name: str, simulated: list[str], killed_by: list[str]) -> tuple[tuple[str, ...], str]:
    """Events of the seeds that are likely to kill a mutant, or why no seed of the simulation can notice it.

    Raises:
        PatchError: The line says something else, or there is no test that could.
    """
    if not simulated:
        return (), ""
    found = _SIMULATED.fullmatch(simulated[0])
    if len(simulated) > 1 or found is None:
        raise PatchError(f"{name}: Simulated {simulated[-1]}: expected seed, seed with VERB, VERB or test, REASON")
    if not killed_by:
        raise PatchError(f"{name}: Simulated: expected a mutant that a test kills, not an equivalent one")
    return tuple((found[1] or "").split(", ")) if found[1] else (), found[2] or ""


def _head(name: str, lines: Iterable[str]) -> dict[str, list[str]]:
    """Values of each key.

    Raises:
        PatchError: A line before the first key.
    """
    found: dict[str, list[str]] = {key: [] for key in _KEYS}
    last: list[str] | None = None
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and key in found:
            last = found[key]
            last.append(value.strip())
        elif line.strip() and last is None:
            raise PatchError(f"{name}: {line.strip()}: expected one of {', '.join(_KEYS)}")
        elif line.strip() and last is not None:
            last[-1] += f" {line.strip()}"
    return found


def file_of(test: str) -> str:
    """File of a test."""
    return test.partition("::")[0]
