"""Failures of a simulation from the command line: ``--faults mtbf=154d,seed=1``."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from berth.cli.output import WRONG_USE, CommandError
from berth.core.simulation.failures import BreakableNode, FailureModel
from berth.core.simulation.fault_plan import FaultPlan
from berth.formats.quantities import QuantityError, duration_ms
from berth.formats.yaml_tree import nearest
from berth.schemas.ledger import Settings
from berth.schemas.workload import ClusterPlan

_DAYS: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)d(.*)", re.ASCII)
_DAY_MS: Final = 86_400_000
_MTBF_MIN_MS: Final = 600_000
"""Shorter times between failures only make a simulation long."""
_NEVER: Final = "never"
"""Value of ``mtbf``: nothing breaks, and the other keys say what it costs that jobs end for others."""
_EXPECTED: Final = "a duration such as 154d, 4h, 30s or 1d12h"
_SEED_MAX: Final = (1 << 63) - 1
_PLAIN: Final = "exponential"
_SHAPED: Final = "weibull:"
_ON: Final = "on"
_OFF: Final = "off"
_UNITS: Final = ((_DAY_MS, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))


def faults_of(text: str, cluster: ClusterPlan) -> FaultPlan:
    """Failures of a cluster.

    Args:
        text: Pairs such as ``mtbf=154d,repair=4h``; what is left out has its default.
        cluster: The cluster.

    Raises:
        CommandError: A pair has another form, its key is unknown or there twice, or its value is invalid.
    """
    words = _pairs(text)
    breaks = words.get("mtbf") != _NEVER
    if not breaks:
        del words["mtbf"]
    replica = {"has_replica": _is_on("replica", words.pop("replica"))} if "replica" in words else {}
    shaped = {"weibull": _shape(words.pop("shape"))} if "shape" in words else {}
    values = {_FIELDS.get(key, key): _READERS[key](key, value) for key, value in words.items()}
    if values.get("mtbf_ms", _MTBF_MIN_MS) < _MTBF_MIN_MS:
        raise CommandError(
            f"--faults: mtbf is {words['mtbf']!r}, expected {duration_text(_MTBF_MIN_MS)} or more", code=WRONG_USE
        )
    of_model = {field: values.pop(field) for field in list(values) if field in FailureModel.__struct_fields__}
    nodes = [BreakableNode(node.name, node.chips, node.leaf) for node in cluster.nodes] if breaks else []
    try:
        return FaultPlan(model=FailureModel(**of_model, **shaped), nodes=nodes, **replica, **values)  # type: ignore[arg-type]  # by name
    except ValueError as error:
        raise CommandError(f"--faults: {error}", code=WRONG_USE) from error


def faults_text(plan: FaultPlan) -> dict[str, str]:
    """Failures in words, with all defaults."""
    model = plan.model
    shape = _PLAIN if model.weibull == 1 else f"{_SHAPED}{model.weibull:g}"
    breaks = (
        f"mtbf={duration_text(model.mtbf_ms)} of a node, chip={model.chip:g}, node={model.node:g},"
        f" leaf={model.leaf:g}, shape={shape}, repair={duration_text(model.repair_ms)}, seed={model.seed}"
    )
    return {
        "failures": breaks if plan.has_failures else "none",
        "cost of a failure" if plan.has_failures else "cost of an end for another job": ", ".join(
            f"{name}={duration_text(getattr(plan, f'{name}_ms'))}"
            for name in ("checkpoint", "grace", "recreate", "restart", "rejoin")
        )
        + f", replica={_ON if plan.has_replica else _OFF}",
    }


def check_reserves(counts: Sequence[int], settings: Settings) -> None:
    """Check that nodes in reserve are fewer than those of a SuperPoD.

    Raises:
        CommandError: There are as many nodes in reserve as a SuperPoD has, or more.
    """
    for count in counts:
        if not 0 <= count < settings.super_pod_size:
            raise CommandError(
                f"--reserve-nodes is {count}, expected a number from 0 to {settings.super_pod_size - 1}, below"
                " super_pod_size",
                code=WRONG_USE,
            )


def duration_text(time_ms: int) -> str:
    """A duration in the form in which it is read, such as ``1d12h``; rounded to seconds from an hour on."""
    rest_ms = time_ms if time_ms < _UNITS[1][0] else (time_ms + 500) // 1000 * 1000
    text = ""
    for size_ms, unit in _UNITS:
        count, rest_ms = divmod(rest_ms, size_ms)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise CommandError(f"--faults {pair!r}: expected key=value, such as mtbf=154d", code=WRONG_USE)
        if key not in KEYS:
            raise CommandError(f"--faults: {key!r} is no key, expected {nearest(key, KEYS)}", code=WRONG_USE)
        if key in found:
            raise CommandError(
                f"--faults: {key} is there twice, {found[key]} and {value}, expected one", code=WRONG_USE
            )
        found[key] = value
    return found


def _wrong(key: str, value: str, expected: str) -> CommandError:
    return CommandError(f"--faults: {key} is {value!r}, expected {expected}", code=WRONG_USE)


def _duration(key: str, value: str) -> int:
    days = _DAYS.fullmatch(value)
    try:
        if days is None:
            return duration_ms(value)
        return round(float(days[1]) * _DAY_MS) + (duration_ms(days[2]) if days[2] else 0)
    except QuantityError as error:
        raise _wrong(key, value, _EXPECTED) from error


def _weight(key: str, value: str) -> float:
    return _number(key, value, "a number from 0 on; the three are weights of one another")


def _number(key: str, value: str, expected: str) -> float:
    try:
        number = float(value)
    except ValueError as error:
        raise _wrong(key, value, expected) from error
    if not 0 <= number < math.inf:
        raise _wrong(key, value, expected)
    return number


def _seed(key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= len(str(_SEED_MAX)) and int(value) <= _SEED_MAX):
        raise _wrong(key, value, f"a whole number from 0 to {_SEED_MAX}")
    return int(value)


def _is_on(key: str, value: str) -> bool:
    if value not in {_ON, _OFF}:
        raise _wrong(key, value, f"{_ON} or {_OFF}")
    return value == _ON


def _shape(value: str) -> float:
    expected = "exponential, or weibull:K such as weibull:0.7"
    if value == _PLAIN:
        return 1.0
    if not value.startswith(_SHAPED):
        raise _wrong("shape", value, expected)
    return _number("shape", value.removeprefix(_SHAPED), expected)


_FIELDS: Final = {
    key: f"{key}_ms" for key in ("mtbf", "repair", "checkpoint", "grace", "recreate", "restart", "rejoin")
}
"""Fields of keys that have another name."""
_READERS: Final[Mapping[str, Callable[[str, str], float]]] = {
    **dict.fromkeys(_FIELDS, _duration),
    **dict.fromkeys(("chip", "node", "leaf"), _weight),
    "seed": _seed,
}
KEYS: Final = (
    "mtbf",
    "chip",
    "node",
    "leaf",
    "shape",
    "repair",
    "seed",
    "checkpoint",
    "grace",
    "recreate",
    "restart",
    "rejoin",
    "replica",
)
