"""What became of mutants, and the file in which it is remembered.

A mutant that a test killed stays killed while its text and the file of that test are the same; one that survived is
tried again as soon as anything in the tree changes.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from tests.mutants.generator import Site, changed
from tests.mutants.trees import digest_of

Verdict = Literal["killed", "timed out", "survived"]
_DIGEST_BYTES: Final = 16


class Mutant(NamedTuple):
    """A change of the product that is tried.

    Attributes:
        name: Its identity.
        texts: Modules as it makes them, by path.
        places: Where it changes them: path, and line and column.
        old: Lines that change, without the space around them.
        new: What they become.
    """

    name: str
    texts: dict[str, str]
    places: tuple[tuple[str, tuple[int, int]], ...]
    old: str
    new: str

    @property
    def path(self) -> str:
        """Its first module."""
        return next(iter(self.texts))


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a mutant.

    Attributes:
        verdict: What it came to.
        digest: Of what this holds for.
        killer: The test that failed, was late, or ended its process; empty when the product cannot be imported.
        tests: How many tests ran.
        seconds: How long they took, on the wall.
    """

    verdict: Verdict
    digest: str = ""
    killer: str = ""
    tests: int = 0
    seconds: float = 0.0


def mutant_of(site: Site, source: bytes) -> Mutant:
    """The mutant of a generated site."""
    return mutant_from(site.name, {site.path: (source, changed(source, site.edits))}, {site.path: site.edits[0].start})


def mutant_from(name: str, texts: Mapping[str, tuple[bytes, bytes]], starts: Mapping[str, int]) -> Mutant:
    """A mutant from texts before and after, and where the first change of each is, in bytes."""
    places = tuple((path, _place(texts[path][0], start)) for path, start in starts.items())
    shown = [_lines_of(*pair) for pair in texts.values()]
    new = {path: after.decode() for path, (_, after) in texts.items()}
    return Mutant(name, new, places, *(" … ".join(words) for words in zip(*shown, strict=True)))


def _place(source: bytes, start: int) -> tuple[int, int]:
    before = source[:start]
    return before.count(b"\n") + 1, start - (before.rfind(b"\n") + 1)


def _lines_of(before: bytes, after: bytes) -> tuple[str, str]:
    """Lines that differ, each without the space around it."""
    one, other = before.decode().splitlines(), after.decode().splitlines()
    start = next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0)
    same = 0
    while same < min(len(one), len(other)) - start and one[-1 - same] == other[-1 - same]:
        same += 1
    ends = [lines[start : len(lines) - same] for lines in (one, other)]
    old, new = (" ".join(" ".join(lines).split()) for lines in ends)
    return old, new


def known(
    root: Path, kept: Mapping[str, Outcome], mutants: list[Mutant], tree: str
) -> Iterator[tuple[Mutant, Outcome]]:
    """Mutants whose outcomes are known and still hold."""
    for mutant in mutants:
        outcome = kept.get(mutant.name)
        if outcome is not None and outcome.digest == digest_for(root, mutant, outcome, tree):
            yield mutant, outcome


def digest_for(root: Path, mutant: Mutant, outcome: Outcome, tree: str) -> str:
    """What an outcome of a mutant depends on, as a number.

    Args:
        root: The tree.
        mutant: The mutant.
        outcome: What became of it.
        tree: Digest of the tree.
    """
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path, text in sorted(mutant.texts.items()):
        found.update(f"\0{path}\0{len(text)}\0{text}".encode())
    file = outcome.killer.partition("::")[0]
    found.update((digest_of(root, [file]) if file else tree).encode())
    return found.hexdigest()


def load(path: Path) -> dict[str, Outcome]:
    """Outcomes by mutant; none when there is no such file, or it holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def save(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write outcomes; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(dict(sorted(outcomes.items()))), indent=1) + b"\n")
    fresh.replace(path)
