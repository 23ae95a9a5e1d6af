"""What became of mutants, and the file in which it is remembered.

An outcome holds for the patch, the files that it changes and the files of its tests. While these stay the same, a
mutant that was killed, or is equivalent, is not tried again.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.mutants.patches import Mutant, file_of

Verdict = Literal["killed", "killed by time-out", "equivalent", "survived", "broken"]
GOOD: Final[frozenset[Verdict]] = frozenset({"killed", "killed by time-out", "equivalent"})
_DIGEST_BYTES: Final = 16


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a mutant.

    Attributes:
        verdict: What it came to; ``broken`` when the patch or its tests could not be tried.
        digest: Of what the verdict holds for.
        seconds: How long its tests ran.
        why: The test that passes, or what is broken.
    """

    verdict: Verdict
    digest: str = ""
    seconds: float = 0.0
    why: str = ""

    @property
    def is_good(self) -> bool:
        """Whether a test notices the mutant, or none can."""
        return self.verdict in GOOD


def digest_of(root: Path, mutant: Mutant) -> str:
    """What an outcome of a mutant depends on, as a number."""
    found = hashlib.blake2b(mutant.patch.encode(), digest_size=_DIGEST_BYTES)
    for name in [*mutant.changes, *sorted(set(map(file_of, mutant.killed_by)))]:
        path = root / name
        content = path.read_bytes() if path.is_file() else b""
        found.update(f"\0{name}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def load(path: Path) -> dict[str, Outcome]:
    """Outcomes by mutant; none when there is no such file, or it holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def save(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write outcomes; a reader sees the old file or the new one."""
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(outcomes.items()))), indent=1)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(text + b"\n")
    fresh.replace(path)
