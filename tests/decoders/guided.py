"""Inputs chosen by the coverage that they add, with atheris, in a process of its own for each decoder.

``python -m tests.decoders.guided NAME SECONDS SEED FOLDER`` is that process: the engine never returns. It leaves its
figures and the failing inputs in the folder.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tests.decoders.decoder import INPUT_BYTES_MAX, Decoder, attempt, bounded_memory
from tests.decoders.run import Failure, Tally

_GRACE_S: Final = 60
"""Time for imports, which are instrumented."""


class _Figures(msgspec.Struct):
    read: int
    refused: dict[str, int]
    failures: list[bytes]


def run(decoder: Decoder, seconds: float, *, seed: int) -> Tally:
    """Let the engine choose inputs for a while.

    Raises:
        SystemExit: The engine is not installed, or its process failed.
    """
    if importlib.util.find_spec("atheris") is None:
        raise SystemExit("atheris is not installed: make decoders ENGINE=atheris installs it")
    with tempfile.TemporaryDirectory(prefix="berth-decoders-") as folder:
        arguments = [decoder.name, str(seconds), str(seed), folder]
        done = subprocess.run(  # noqa: S603 - this program itself
            [sys.executable, "-m", "tests.decoders.guided", *arguments],
            check=False,
            capture_output=True,
            timeout=seconds + decoder.cpu_s + _GRACE_S,
        )
        path = Path(folder, "figures")
        if not path.is_file():
            raise SystemExit(f"{decoder.name}: the engine ended early: {done.stderr.decode(errors='replace')[-2000:]}")
        figures = msgspec.msgpack.decode(path.read_bytes(), type=_Figures)
    tally = Tally(read=figures.read, refused=Counter(figures.refused))
    with bounded_memory(decoder.memory_bytes):
        for data in figures.failures:
            outcome = attempt(decoder, data)
            if outcome.wrong:
                tally.failures.setdefault(outcome.wrong, Failure(decoder.name, data, outcome))
    return tally


def fuzz(name: str, seconds: float, seed: int, folder: Path) -> None:
    """Run the engine; ends the process."""
    import atheris  # type: ignore[import-untyped]  # noqa: PLC0415  # it has no types; only this process needs it, and it must come before what it instruments

    with atheris.instrument_imports(include=["berth.formats", "berth.schemas", "berth.core.state", "yaml"]):
        from tests.decoders.registry import BY_NAME  # noqa: PLC0415  # as above
    from berth.runtime.clock import SystemClock  # noqa: PLC0415  # as above
    from tests.decoders.mutations import mutated  # noqa: PLC0415  # as above

    decoder = BY_NAME[name]
    seeds = list(decoder.corpus().values())
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds):
        (corpus / str(number)).write_bytes(data)
    tally, clock = Tally(), SystemClock()
    end_s = clock.monotonic_s() + seconds

    def one(data: bytes) -> None:
        tally.note(decoder, data, attempt(decoder, data))
        if clock.monotonic_s() >= end_s:
            failures = [failure.data for failure in tally.failures.values()]
            figures = _Figures(tally.read, dict(tally.refused), failures)
            (folder / "figures").write_bytes(msgspec.msgpack.encode(figures))
            os._exit(0)

    def damage(data: bytes, most: int, number: int) -> bytes:
        rng = Random(number)  # noqa: S311 - of damage
        if rng.random() < 0.3:
            chosen: bytes = atheris.Mutate(data, most)
            return chosen
        return mutated(rng, [data, data, *seeds], decoder.form)[:most]

    options = [f"-seed={seed % (1 << 31) or 1}", f"-max_len={INPUT_BYTES_MAX}", "-rss_limit_mb=4096", "-timeout=300"]
    with bounded_memory(decoder.memory_bytes + (1 << 30)):
        atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=damage)
        atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
