"""Results of clean batches of seeds in a file, so that a long run can be interrupted and gone on with.

They count only for the code that they were made with: a file of other code is refused.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from tests.sim.batch import Result

_ROOT: Final = Path(__file__).parents[2]
_CODE: Final = ("berth", "schemas", "services", "tests/fuzz", "tests/sim", "tests/support")


class KeptError(Exception):
    """The file cannot be used."""


class _Head(msgspec.Struct, frozen=True):
    code: str


class _Kept(msgspec.Struct, frozen=True):
    seeds: list[int]
    count: dict[str, int]
    steps: list[int]


class KeptResults:
    """Results in a file, a line each.

    Args:
        path: The file; made if it is missing.

    Raises:
        KeptError: It was made with other code, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[tuple[int, ...], _Kept] = {}
        code = code_digest()
        if not path.exists():
            self._append(_Head(code))
            return
        lines = path.read_bytes().splitlines()
        try:
            head = msgspec.json.decode(lines[0] if lines else b"", type=_Head)
            kept = [msgspec.json.decode(line, type=_Kept) for line in lines[1:]]
        except msgspec.MsgspecError as error:
            raise KeptError(f"{path} is no file of results: {error}") from error
        if head.code != code:
            raise KeptError(f"{path} was made with other code ({head.code}, now {code}); name a new file")
        self._found = {tuple(one.seeds): one for one in kept}

    def find(self, seeds: list[int]) -> Result | None:
        """Result of a batch that was clean; None for one that has not been lived through."""
        kept = self._found.get(tuple(seeds))
        return None if kept is None else Result(Counter(kept.count), [], len(kept.seeds), list(kept.steps))

    def keep(self, seeds: list[int], result: Result) -> None:
        """Store the result of a batch, unless a seed failed."""
        if not result.failed:
            self._append(_Kept(seeds, dict(result.count), result.steps))

    def _append(self, line: msgspec.Struct) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def code_digest() -> str:
    """Digest of all code that a seed depends on."""
    digest = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(_ROOT)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
