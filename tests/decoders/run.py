"""Many inputs for one decoder: those of the corpus, and damaged ones."""

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.decoders.decoder import CORPUS, Decoder, Outcome, attempt, bounded_memory
from tests.decoders.mutations import mutated
from tests.decoders.shrinking import shortest

KINDS_MAX: Final = 10
"""Different failures of one decoder after which its run ends."""


@dataclass(frozen=True)
class Failure:
    """An input that a decoder must not answer as it does."""

    decoder: str
    data: bytes
    outcome: Outcome


@dataclass
class Tally:
    """What a run did.

    Attributes:
        read: Inputs that were decoded.
        refused: Documented errors by their class.
        failures: By what is wrong, the first input of each.
    """

    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """All inputs."""
        return self.read + self.refused.total() + len(self.failures)

    def note(self, decoder: Decoder, data: bytes, outcome: Outcome) -> None:
        """Take the outcome of one input."""
        if outcome.wrong:
            self.failures.setdefault(outcome.wrong, Failure(decoder.name, data, outcome))
        elif outcome.error is not None:
            self.refused[type(outcome.error).__name__] += 1
        else:
            self.read += 1


def run(decoder: Decoder, goes_on: Callable[[int], bool], *, seed: int = 0) -> Tally:
    """Decode the corpus, and then damaged inputs as long as ``goes_on``, which takes the number of inputs so far.

    Equal seeds give equal inputs.

    Raises:
        ValueError: The decoder has no corpus.
    """
    corpus = decoder.corpus()
    if not corpus:
        raise ValueError(f"{decoder.name}: no corpus in {CORPUS / decoder.name}")
    tally = Tally()
    rng = Random(f"{decoder.name} {seed}")  # noqa: S311 - of damage
    seeds = list(corpus.values())
    with bounded_memory(decoder.memory_bytes):
        for data in seeds:
            tally.note(decoder, data, attempt(decoder, data))
        count = 0
        while goes_on(count) and len(tally.failures) < KINDS_MAX:
            data = mutated(rng, seeds, decoder.form)
            tally.note(decoder, data, attempt(decoder, data))
            count += 1
    return tally


def shrunk(decoder: Decoder, failure: Failure) -> Failure:
    """The same failure with a short input."""

    def fails(data: bytes) -> bool:
        return attempt(decoder, data).wrong == failure.outcome.wrong

    slow = failure.outcome.wrong.startswith("more than")
    with bounded_memory(decoder.memory_bytes):
        data = shortest(failure.data, fails, attempts=60 if slow else 4_000)
    return Failure(failure.decoder, data, failure.outcome)


def stored(failure: Failure) -> Path:
    """Store the input of a failure in the corpus; returns its file.

    It begins with ``bad-``: an input that the decoder has to read is renamed to ``ok-``.
    """
    folder = CORPUS / failure.decoder
    folder.mkdir(exist_ok=True)
    path = folder / f"bad-{zlib.crc32(failure.data):08x}.bin"
    path.write_bytes(failure.data)
    return path
