"""Amounts: sums, comparisons and texts. A dimension that is missing is 0 of a sum, and no limit of a limit."""

from collections.abc import Iterable, Mapping

from berth.schemas.queues.queue import AMOUNT_MAX, CHIP, CPU, MEMORY, Amounts

_CPU = 1000
_UNITS = ((1 << 40, "Ei"), (1 << 30, "Pi"), (1 << 20, "Ti"), (1 << 10, "Gi"), (1, "Mi"))


def plus(amounts: Mapping[str, int], more: Mapping[str, int]) -> Amounts:
    """Sum, at most :data:`AMOUNT_MAX` in each dimension."""
    found = dict(amounts)
    add(found, more)
    return found


def add(amounts: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    """Add ``more`` to ``amounts`` as often as ``times`` says, at most up to :data:`AMOUNT_MAX`."""
    for dimension, amount in more.items():
        amounts[dimension] = min(AMOUNT_MAX, amounts.get(dimension, 0) + amount * times)


def total(parts: Iterable[Mapping[str, int]]) -> Amounts:
    """Sum of all parts."""
    found: Amounts = {}
    for part in parts:
        add(found, part)
    return found


def is_within(amounts: Mapping[str, int], bounds: Mapping[str, int], dimensions: Iterable[str]) -> bool:
    """Whether none of the dimensions has more than its bound; a bound that is missing is 0."""
    return all(amounts.get(dimension, 0) <= bounds.get(dimension, 0) for dimension in dimensions)


def in_order(dimensions: Iterable[str]) -> list[str]:
    """Dimensions in the order in which they are checked and shown: by name, chips between cpu and memory."""
    return sorted(dimensions)


def ordered(amounts: Mapping[str, int]) -> Amounts:
    """The same amounts, with their dimensions in order."""
    return {dimension: amounts[dimension] for dimension in in_order(amounts)}


def judged(charge: Mapping[str, int]) -> list[str]:
    """Dimensions by which a gang is judged: its chips if it has any, else cpu and memory."""
    chips = [dimension for dimension in in_order(charge) if is_chips(dimension) and charge[dimension]]
    return chips or [dimension for dimension in in_order(charge) if charge[dimension]]


def is_chips(dimension: str) -> bool:
    """Whether the dimension is the name of a resource of chips."""
    return dimension not in {CPU, MEMORY}


def unit_of(dimension: str) -> int:
    """What of a dimension is not broken where it is split: a chip, a thousandth of a CPU, a MiB."""
    return CHIP if is_chips(dimension) else 1


def unit_size(dimension: str) -> int:
    """How much of an amount is a chip, a CPU or a MiB."""
    return 1 if dimension == MEMORY else _CPU if dimension == CPU else CHIP


def number_of(dimension: str, amount: int) -> str:
    """The amount as people write it: CPUs, a binary quantity of bytes, chips; exact, with separators of thousands."""
    if dimension == MEMORY:
        size, unit = next(((size, unit) for size, unit in _UNITS if amount and amount % size == 0), (1, "Mi"))
        return f"{amount // size}{unit}"
    whole, rest = divmod(amount, unit_size(dimension))
    if not rest:
        return f"{whole:,}"
    digits = 3 if dimension == CPU else 2
    return f"{whole:,}.{rest:0{digits}}".rstrip("0")
