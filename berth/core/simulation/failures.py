"""Failures of chips, nodes and leaf switches over time, drawn from models.

Each part fails and is repaired in turn, independent of all others: times to a failure have a Weibull distribution, of
which the exponential one is a case, and times to a repair an exponential one. At the beginning all parts are new. A
part has numbers of its own, which depend on the seed and on its name, so that other parts change nothing for it.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from berth.core.simulation.pseudo_random import Stream
from berth.schemas.nodes import NodeDescription

PartKind = Literal["chip", "node", "leaf"]
EVENTS_MAX: Final = 2_000_000
"""Most events of one simulation."""
SHAPE_MIN: Final = 0.1
SHAPE_MAX: Final = 10.0
_SEED_BYTES: Final = 8


class FailureModel(NamedTuple):
    """How parts of one kind fail.

    Attributes:
        kind: The parts.
        mtbf_ms: Mean time from the repair of a part to its next failure, in milliseconds, 1 or more.
        repair_ms: Mean time to its repair, in milliseconds, 1 or more.
        shape: Shape of the Weibull distribution, ``SHAPE_MIN`` to ``SHAPE_MAX``: 1 is the exponential distribution;
            with a smaller one new parts fail more often than old ones.
    """

    kind: PartKind
    mtbf_ms: int
    repair_ms: int
    shape: float = 1.0


class FailureEvent(NamedTuple):
    """A part fails or works again. Events are ordered by their fields.

    Attributes:
        at_ms: Time, in milliseconds from the beginning.
        is_fault: It fails; otherwise it works again.
        kind: What it is.
        name: The node, or the leaf switch.
        chip: Number of the chip; -1 for nodes and leaf switches.
    """

    at_ms: int
    is_fault: bool
    kind: PartKind
    name: str
    chip: int = -1


class TooManyFailuresError(ValueError):
    """The models have more events than a simulation takes.

    Attributes:
        expected: About how many events there would be.
    """

    def __init__(self, expected: int) -> None:
        super().__init__(f"about {expected} failures and repairs, at most {EVENTS_MAX} are simulated")
        self.expected = expected


class _Part(NamedTuple):
    name: str
    chip: int = -1


def failures(
    nodes: Sequence[NodeDescription], models: Sequence[FailureModel], *, seed: int, span_ms: int
) -> list[FailureEvent]:
    """Failures and repairs of the parts of a cluster, in order. The result depends on the arguments alone.

    A repair after the end is left out.

    Args:
        nodes: The nodes, each with its chips and its leaf switch.
        models: Models, at most one for each kind of part.
        seed: Any whole number.
        span_ms: Length of the time span, in milliseconds.

    Raises:
        ValueError: A model is out of bounds, or two are for the same kind.
        TooManyFailuresError: There would be more than ``EVENTS_MAX`` events.
    """
    _check(models)
    parts = {model.kind: list(_parts(nodes, model.kind)) for model in models}
    expected = sum(2 * len(parts[model.kind]) * span_ms // (model.mtbf_ms + model.repair_ms) for model in models)
    if expected > EVENTS_MAX:
        raise TooManyFailuresError(expected)
    return sorted(
        event for model in models for part in parts[model.kind] for event in _events(model, part, seed, span_ms)
    )


def _check(models: Sequence[FailureModel]) -> None:
    """See that models are within their bounds.

    Raises:
        ValueError: One is not, or two are for the same kind.
    """
    kinds = [model.kind for model in models]
    if len(set(kinds)) < len(kinds):
        raise ValueError("two models for the same kind of part")
    for model in models:
        if model.mtbf_ms < 1 or model.repair_ms < 1:
            raise ValueError(f"{model.kind}: times of {model.mtbf_ms} and {model.repair_ms} ms, expected 1 or more")
        if not SHAPE_MIN <= model.shape <= SHAPE_MAX:
            raise ValueError(f"{model.kind}: shape {model.shape}, expected {SHAPE_MIN} to {SHAPE_MAX}")


def _parts(nodes: Sequence[NodeDescription], kind: PartKind) -> Iterator[_Part]:
    """Parts of one kind, each once."""
    match kind:
        case "chip":
            for node in nodes:
                for chip in range(node.chips.bit_length()):
                    if node.chips >> chip & 1:
                        yield _Part(node.name, chip)
        case "node":
            yield from (_Part(node.name) for node in nodes)
        case "leaf":
            yield from (_Part(leaf) for leaf in dict.fromkeys(node.leaf for node in nodes if node.leaf))


def _events(model: FailureModel, part: _Part, seed: int, span_ms: int) -> Iterator[FailureEvent]:
    """Failures and repairs of one part."""
    word = f"{seed}/{model.kind}/{part.name}/{part.chip}"
    stream = Stream(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=_SEED_BYTES).digest(), "little"))
    scale = model.mtbf_ms / math.gamma(1 + 1 / model.shape)
    at_ms = 0
    while True:
        for is_fault in (True, False):
            exponential = -math.log(stream.fraction())
            gap = scale * exponential ** (1 / model.shape) if is_fault else model.repair_ms * exponential
            at_ms += max(math.ceil(gap), 1)
            if at_ms >= span_ms:
                return
            yield FailureEvent(at_ms, is_fault, model.kind, part.name, part.chip)
