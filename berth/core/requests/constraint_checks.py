"""Validation of the constraints of pods: what can never be judged is refused, with the field."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from berth.schemas.intake import JobRequest
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm
from berth.schemas.refusal import Refusal

_WITH_VALUES: Final = frozenset({"In", "NotIn"})
_WITHOUT_VALUES: Final = frozenset({"Exists", "DoesNotExist"})


def check_constraints(request: JobRequest) -> Refusal | None:
    """First error in the constraints of the tasks of a request; None when there is none."""
    for index, task in enumerate(request.tasks):
        if task.constraints is not None:
            refusal = next(_errors(f"tasks[{index}].constraints", task.constraints), None)
            if refusal is not None:
                return refusal
    return None


def _errors(field: str, wanted: PodConstraints) -> Iterator[Refusal]:
    for name in ("affinity", "anti_affinity"):
        terms: tuple[PodTerm, ...] = getattr(wanted, name)
        for index, term in enumerate(terms):
            place = f"{field}.{name}[{index}]"
            yield from _selector_errors(f"{place}.selector", term.selector)
            yield from _selector_errors(f"{place}.namespace_selector", term.namespace_selector)
    for index, spread in enumerate(wanted.spread):
        yield from _selector_errors(f"{field}.spread[{index}].selector", spread.selector)
    yield from _twice(f"{field}.spread", [spread.topology_key for spread in wanted.spread], "topology key")
    yield from _twice(f"{field}.resources", [name for name, _ in wanted.resources], "resource")
    yield from _taken_twice(f"{field}.ports", wanted.ports)


def _taken_twice(field: str, ports: tuple[HostPort, ...]) -> Iterator[Refusal]:
    """Ports that are taken twice: on one address, or on one and on all of them."""
    addresses: dict[tuple[int, str], set[str]] = {}
    for port in ports:
        known = addresses.setdefault((port.port, port.protocol), set())
        if known and (not port.address or not known.isdisjoint({"", port.address})):
            value = f"{port.port}/{port.protocol} twice"
            yield Refusal(code="invalid-request", field=field, value=value, expected="each host port once")
        known.add(port.address)


def _twice(field: str, names: list[str], what: str) -> Iterator[Refusal]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Refusal(code="invalid-request", field=field, value=f"{name} twice", expected=f"each {what} once")


def _selector_errors(field: str, selector: LabelSelector | None) -> Iterator[Refusal]:
    for index, expression in enumerate(selector.expressions if selector is not None else ()):
        place = f"{field}.expressions[{index}]"
        known = _WITH_VALUES | _WITHOUT_VALUES
        if expression.operator not in known:
            expected = f"one of {', '.join(sorted(known))}"
            yield Refusal(
                code="invalid-request", field=f"{place}.operator", value=expression.operator, expected=expected
            )
        elif (expression.operator in _WITH_VALUES) != bool(expression.values):
            expected = "at least one value" if expression.operator in _WITH_VALUES else "no value"
            value = str(list(expression.values))
            yield Refusal(
                code="invalid-request",
                field=f"{place}.values",
                value=value,
                expected=f"{expected} with {expression.operator}",
            )
