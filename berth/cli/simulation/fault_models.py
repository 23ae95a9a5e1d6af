"""Failure models from the command line: ``--faults mtbf=1000h,repair=2h,seed=7``."""

from typing import Final, NamedTuple

from berth.cli.output import WRONG_USE, CommandError
from berth.core.simulation.failures import SHAPE_MAX, SHAPE_MIN, FailureModel, PartKind
from berth.formats.quantities import QuantityError, duration_ms
from berth.formats.yaml_tree import nearest

_PARTS: Final[dict[str, PartKind]] = {"mtbf": "node", "chip": "chip", "node": "node", "leaf": "leaf"}
"""Kind of part whose mean time between failures a key says."""
_KEYS: Final = (*_PARTS, "repair", "shape", "seed")
_REPAIR_MS: Final = 3_600_000
_SEED_MAX: Final = (1 << 63) - 1


class FaultsError(CommandError):
    """The value of ``--faults`` is wrong."""

    def __init__(self, words: str) -> None:
        super().__init__(f"--faults: {words}", code=WRONG_USE)


class FaultModels(NamedTuple):
    """Failures to simulate.

    Attributes:
        models: Models of the kinds of parts that fail.
        seed: Seed of the failures.
    """

    models: tuple[FailureModel, ...]
    seed: int = 0


def read_faults(text: str) -> FaultModels:
    """Failure models of a text such as ``mtbf=1000h,leaf=9000h,repair=2h,shape=0.8,seed=7``.

    ``mtbf`` and ``node`` are the mean time between failures of one node, ``chip`` of one chip, ``leaf`` of one leaf
    switch; at least one of them is given. ``repair`` is the mean time to a repair (1h), ``shape`` that of the Weibull
    distribution (1, the exponential one).

    Raises:
        FaultsError: The text has another form, a key is unknown or given twice, or a value is out of bounds.
    """
    words: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not value:
            raise FaultsError(f"{pair!r}: expected key=value, such as mtbf=1000h")
        if key not in _KEYS:
            raise FaultsError(f"{key!r} is not a key, expected {nearest(key, _KEYS)}")
        if key in words or (key in {"mtbf", "node"} and {"mtbf", "node"} & words.keys()):
            raise FaultsError(f"{key} is given twice (mtbf is that of a node)")
        words[key] = value
    repair_ms = _duration("repair", words["repair"]) if "repair" in words else _REPAIR_MS
    shape = _shape(words["shape"]) if "shape" in words else 1.0
    models = tuple(
        FailureModel(kind, _duration(key, words[key]), repair_ms, shape) for key, kind in _PARTS.items() if key in words
    )
    if not models:
        raise FaultsError("nothing fails: expected mtbf, chip, node or leaf, such as mtbf=1000h")
    return FaultModels(models, _seed(words["seed"]) if "seed" in words else 0)


def _duration(key: str, word: str) -> int:
    """Milliseconds of a duration above 0.

    Raises:
        FaultsError: It is none.
    """
    try:
        found = duration_ms(word)
    except QuantityError as error:
        raise FaultsError(f"{key} is {word!r}, expected {error.expected}") from error
    if not found:
        raise FaultsError(f"{key} is {word!r}, expected a duration above 0")
    return found


def _shape(word: str) -> float:
    """Shape of a distribution.

    Raises:
        FaultsError: It is no number, or out of bounds.
    """
    try:
        found = float(word)
    except ValueError:
        found = 0.0
    if not SHAPE_MIN <= found <= SHAPE_MAX:
        raise FaultsError(f"shape is {word!r}, expected a number from {SHAPE_MIN:g} to {SHAPE_MAX:g}")
    return found


def _seed(word: str) -> int:
    """Seed of the failures.

    Raises:
        FaultsError: It is no whole number, or out of bounds.
    """
    if not (word.isascii() and word.isdigit()) or int(word) > _SEED_MAX:
        raise FaultsError(f"seed is {word!r}, expected a whole number from 0 to {_SEED_MAX}")
    return int(word)
