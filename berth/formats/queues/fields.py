"""Fields of an object, each with an error of its own: one wrong field hides no other."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Final, TypeVar

from berth.formats.quantities import QuantityError, quantity
from berth.formats.yaml_tree import DocumentError, Tree
from berth.products.resources import RESOURCES, is_chips, similar_resource
from berth.schemas.queues.queue import AMOUNT_MAX, CHIP, CPU, MEMORY, Amounts

T = TypeVar("T")
D = TypeVar("D")
_UNITS: Final = {CPU: (Fraction(1, 1000), "thousandths of a CPU"), MEMORY: (Fraction(1 << 20), "MiB")}
"""What the amounts of a dimension count, and its name."""
_CHIP_UNIT: Final = (Fraction(1, CHIP), "hundredths of a chip")


class QueueError(DocumentError):
    """A wrong field of a queue."""


class Fields:
    """Reads fields of one object, and keeps what is wrong with them.

    Attributes:
        errors: Errors, in the order of reading.
        notes: What has no effect, a sentence each.
    """

    def __init__(self) -> None:
        self.errors: list[DocumentError] = []
        self.notes: list[str] = []

    def read(self, reading: Callable[[], T], otherwise: D) -> T | D:
        """What a reading yields; of a wrong field its error is kept, and ``otherwise`` counts."""
        try:
            return reading()
        except DocumentError as error:
            self.errors.append(error)
            return otherwise

    def optional(self, place: Tree | None, key: str, read: Callable[[Tree], T], otherwise: D) -> T | D:
        """Field ``key`` of a mapping; ``otherwise`` if it is missing, null or wrong."""

        def reading() -> T | D:
            field = None if place is None else place.find(key)
            return otherwise if field is None else read(field)

        return self.read(reading, otherwise)

    def amounts(self, place: Tree) -> Amounts:
        """Amounts of a mapping of resources to quantities, rounded down; what is not enforced is noted and left out."""
        found: Amounts = {}
        for resource, field in self.read(place.fields, []):
            if resource in _UNITS or is_chips(resource):
                amount = self.read(partial(_amount, resource, field), None)
                if amount is not None:
                    found[resource] = amount
            else:
                self.notes.append(f"{field.path} is stored and not enforced{_hint(resource)}")
        return {resource: found[resource] for resource in sorted(found)}

    def unused(self, place: Tree | None, keys: Iterable[str]) -> None:
        """Note which of some fields are there without having an effect."""
        for key in keys:
            if place is not None and place.find(key) is not None:
                self.notes.append(f"{place.child(key, None).path} is not used")


def _hint(resource: str) -> str:
    similar = similar_resource(resource, RESOURCES)
    return f"; is {similar} meant?" if similar else ""


def _amount(resource: str, field: Tree) -> int:
    """Amount of a dimension, rounded down."""
    try:
        number = quantity(field.value)
    except QuantityError as error:
        raise field.wrong(error.expected) from error
    if is_chips(resource) and number.denominator != 1:
        raise field.wrong("a whole number of chips")
    unit, word = _UNITS.get(resource, _CHIP_UNIT)
    amount = int(number / unit)
    if amount > AMOUNT_MAX:
        raise field.wrong(f"at most {AMOUNT_MAX} {word}")
    return amount
