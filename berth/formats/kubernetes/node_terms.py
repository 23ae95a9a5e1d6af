"""Terms over labels and names of nodes, from pods and from volumes: in the words of messages.

Source: Kubernetes, NodeSelectorTerm.
"""

from collections.abc import Iterable
from typing import Final, get_args

from berth.formats.kubernetes.lean import SelectorRequirement, SelectorTerm
from berth.formats.kubernetes.wrong_fields import WrongFieldError
from berth.schemas.constraints import Expression, Operator, Term

_OPERATORS: Final = get_args(Operator)


def terms_of(field: str, terms: Iterable[SelectorTerm] | None) -> tuple[Term, ...]:
    """Terms of which one must hold; a term without conditions matches no node, so it is left out.

    Raises:
        WrongFieldError: A term is invalid, or none has a condition.
    """
    read = (term_of(f"{field}[{at}]", term) for at, term in enumerate(terms or ()))
    found = tuple(term for term in read if term.expressions)
    if not found:
        raise WrongFieldError(field, [], "at least one term with a condition: without one no node matches")
    return found


def term_of(field: str, term: SelectorTerm) -> Term:
    """Conditions of one term, labels before fields.

    Raises:
        WrongFieldError: A condition is invalid.
    """
    labels = (
        expression_of(f"{field}.matchExpressions[{at}]", it) for at, it in enumerate(term.match_expressions or ())
    )
    fields = (_field(f"{field}.matchFields[{at}]", item) for at, item in enumerate(term.match_fields or ()))
    return Term((*labels, *fields))


def expression_of(field: str, item: SelectorRequirement, operators: tuple[str, ...] = _OPERATORS) -> Expression:
    """One condition.

    Args:
        field: Path of the condition.
        item: The condition.
        operators: Operators that are valid.

    Raises:
        WrongFieldError: It is invalid.
    """
    values = tuple(item.values or ())
    if not item.key:
        raise WrongFieldError(f"{field}.key", item.key, "the key of a label")
    if item.operator not in operators:
        raise WrongFieldError(f"{field}.operator", item.operator, f"one of {', '.join(operators)}")
    if item.operator in {"In", "NotIn"} and not values:
        raise WrongFieldError(f"{field}.values", [], f"at least one value for {item.operator}")
    if item.operator in {"Exists", "DoesNotExist"} and values:
        raise WrongFieldError(f"{field}.values", list(values), f"no values for {item.operator}")
    if item.operator in {"Gt", "Lt"} and (len(values) != 1 or not _is_integer(values[0])):
        raise WrongFieldError(f"{field}.values", list(values), f"one whole number for {item.operator}")
    return Expression(item.key, item.operator, values)  # type: ignore[arg-type]  # one of the words of Operator


def _field(field: str, item: SelectorRequirement) -> Expression:
    expression = expression_of(field, item)
    if expression.key != "metadata.name":
        raise WrongFieldError(f"{field}.key", item.key, "metadata.name, the only field that can be matched")
    if expression.operator not in {"In", "NotIn"}:
        raise WrongFieldError(f"{field}.operator", item.operator, "In or NotIn for a field")
    return expression


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit()
