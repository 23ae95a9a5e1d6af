"""Kubernetes quantities and durations as whole numbers, exact, rounded up.

Source: Kubernetes, resource.Quantity: a signed decimal number with a binary suffix (Ki .. Ei), a decimal suffix
(n, u, m, none, k, M, G, T, P, E) or an exponent (e3, E3); the smallest unit is a nano.
"""

import re
from fractions import Fraction
from typing import Final

from berth.formats.shortened import shortened

NUMBER_MAX: Final = (1 << 31) - 1
"""Largest result: columns of nodes are signed 32-bit numbers."""
RUN_MS_MAX: Final = 1 << 53
"""Longest duration that a float represents exactly."""
_CHARACTERS_MAX: Final = 64
_BITS_MAX: Final = 212
"""Of a number of 64 digits."""
_EXPONENT_MAX: Final = 30
_MIB: Final = 1 << 20
_FORM: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE])([+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]|))", re.ASCII)
_BINARY: Final = {suffix: Fraction(1024**power) for power, suffix in enumerate(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], 1)}
_DECIMAL: Final = {
    suffix: Fraction(10) ** power
    for suffix, power in [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)]
}  # fmt: skip
_DURATION: Final = re.compile(
    r"(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d{1,3})?)s)?(?:(\d{1,15})ms)?", re.ASCII
)
_GO_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}  # fmt: skip
"""The units of Go's ``time.ParseDuration``: microseconds with both signs of micro."""
_GO_PART: Final = re.compile(rf"(\d+\.?\d*|\.\d+)({'|'.join(_GO_UNITS_NS)})", re.ASCII)
_GO_FORM: Final = re.compile(rf"([+-]?)(0|(?:{_GO_PART.pattern})+)", re.ASCII)
_GO_NS_MAX: Final = (1 << 63) - 1


class QuantityError(ValueError):
    """A text that is not a quantity or duration, or one out of bounds.

    Attributes:
        value: The text or number.
        expected: Valid values.
    """

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"{shortened(value)}: expected {expected}")
        self.value = value
        self.expected = expected


def quantity(value: object) -> Fraction:
    """Exact value of a quantity in its base unit (CPUs, bytes, pieces).

    Args:
        value: Text such as ``500m`` or ``1.5Gi``, or a number as in YAML; a float counts as its shortest text.

    Raises:
        QuantityError: It is not a quantity, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(value, 'a quantity such as "500m", "4" or "16Gi"')
    if isinstance(value, int):
        if value.bit_length() > _BITS_MAX:
            raise QuantityError(value, f"a number of at most {_CHARACTERS_MAX} digits")
        number = Fraction(value)
    else:
        text = value.strip() if isinstance(value, str) else repr(value)
        match = _FORM.fullmatch(text) if len(text) <= _CHARACTERS_MAX else None
        if match is None:
            raise QuantityError(value, 'a quantity such as "500m", "4" or "16Gi"')
        number = Fraction(match[2].rstrip(".")) * (-1 if match[1] == "-" else 1)
        if match[3]:
            exponent = int(match[4])
            if abs(exponent) > _EXPONENT_MAX:
                raise QuantityError(value, f"an exponent from -{_EXPONENT_MAX} to {_EXPONENT_MAX}")
            number *= Fraction(10) ** exponent
        else:
            number *= _BINARY.get(match[5]) or _DECIMAL[match[5]]
    if number < 0:
        raise QuantityError(value, "a quantity that is not negative")
    return number


def rounded_up(number: Fraction, *, unit: Fraction | int) -> int:
    """Number of units of size ``unit`` in ``number``, rounded up.

    Raises:
        QuantityError: It is more than :data:`NUMBER_MAX`.
    """
    parts = number / unit
    count = -(-parts.numerator // parts.denominator)
    if count > NUMBER_MAX:
        raise QuantityError(str(number), f"at most {NUMBER_MAX} units")
    return count


def cpu_milli(value: object) -> int:
    """CPU quantity in thousandths of a CPU, rounded up.

    Raises:
        QuantityError: See :func:`quantity` and :func:`rounded_up`.
    """
    return rounded_up(quantity(value), unit=Fraction(1, 1000))


def memory_mib(value: object) -> int:
    """Memory quantity in mebibytes, rounded up.

    Raises:
        QuantityError: See :func:`quantity` and :func:`rounded_up`.
    """
    return rounded_up(quantity(value), unit=_MIB)


def pieces(value: object) -> int:
    """Whole number of pieces, such as chips.

    Raises:
        QuantityError: See :func:`quantity`; or it is a part of a piece, or more than :data:`NUMBER_MAX`.
    """
    number = quantity(value)
    if number.denominator != 1 or number > NUMBER_MAX:
        raise QuantityError(value, "a whole number")
    return int(number)


def duration_ms(value: object) -> int:
    """Milliseconds of a duration such as ``30s``, ``1h30m``, ``1.5s`` or ``250ms``; ``0`` is allowed.

    Raises:
        QuantityError: It is not a duration: numbers and units (h, m, s, ms), the largest unit first.
    """
    expected = 'a duration such as "30s", "1h30m" or "250ms"'
    if value == "0" or (value == 0 and not isinstance(value, bool)):
        return 0
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
    if match is None:
        raise QuantityError(value, expected)
    hours, minutes, seconds, millis = match.groups()
    total = (
        int(hours or 0) * 3_600_000 + int(minutes or 0) * 60_000 + int(Fraction(seconds or 0) * 1000) + int(millis or 0)
    )
    if total > RUN_MS_MAX:
        raise QuantityError(value, f"at most {RUN_MS_MAX} milliseconds")
    return total


def go_duration_s(text: str) -> int:
    """Seconds of a duration as Go writes it, such as ``10m``, ``1h30m`` or ``1.5h``, rounded up; may be negative.

    It takes what Go's ``time.ParseDuration`` takes.

    Raises:
        QuantityError: It is not a duration: numbers with units (h, m, s, ms, us, ns), in any order.
    """
    match = _GO_FORM.fullmatch(text) if len(text) <= _CHARACTERS_MAX else None
    if match is None:
        raise QuantityError(text, 'a duration such as "30s", "10m" or "1h30m"')
    total = sum(int(Fraction(number.rstrip(".")) * _GO_UNITS_NS[unit]) for number, unit in _GO_PART.findall(match[2]))
    if total > _GO_NS_MAX:
        raise QuantityError(text, f"at most {_GO_NS_MAX // _GO_UNITS_NS['h']} hours")
    return -(total // _GO_UNITS_NS["s"]) if match[1] == "-" else -(-total // _GO_UNITS_NS["s"])
