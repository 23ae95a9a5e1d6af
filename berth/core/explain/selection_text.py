"""What a selector and a required node affinity ask of the labels of nodes, in words, and what nodes have instead."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from berth.core.cluster.node_classes import holds_for
from berth.core.cluster.node_table import NodeTable
from berth.core.text import pluralize
from berth.products.model import LABEL_CARD, LABEL_FAMILY, LABEL_TYPE
from berth.schemas.constraints import NAME_KEYS, Expression, Term
from berth.schemas.offers import Shape

_OF_PRODUCT: Final = (LABEL_TYPE, LABEL_CARD, LABEL_FAMILY)
"""Labels that tell products of one resource apart, the one that says most first."""
_VALUES_MAX: Final = 3


class Condition(NamedTuple):
    """A condition of a selector or an affinity on the labels of a node."""

    terms: Sequence[Term]
    """One of them must hold."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it; conditions on names of nodes are left out."""
        return any(
            bool(term.expressions) and holds_for([one for one in term.expressions if one.key not in NAME_KEYS], labels)
            for term in self.terms
        )

    @property
    def only(self) -> Expression | None:
        """Its single expression; None if it has several."""
        one = self.terms[0].expressions if len(self.terms) == 1 else ()
        return one[0] if len(one) == 1 else None

    @property
    def is_of_product(self) -> bool:
        """Whether it selects a product."""
        return self.only is not None and self.only.key in _OF_PRODUCT

    @property
    def text(self) -> str:
        """What a node must have."""
        return " or ".join(" and ".join(_text(one) for one in term.expressions) for term in self.terms)

    @property
    def lacking(self) -> str:
        """What is said of nodes that do not meet it."""
        one = self.only
        if one is not None and one.operator == "Exists":
            return f"lack the label {one.key}"
        if one is not None and one.operator == "DoesNotExist":
            return f"have the label {one.key}"
        return f"do not have {self.text}"


def conditions(shape: Shape) -> list[Condition]:
    """Conditions of a shape on labels, those that select a product first."""
    pairs = [Term((Expression(name, "In", (value,)),)) for name, value in shape.selector if name not in NAME_KEYS]
    if len(shape.affinity) == 1:
        expressions = shape.affinity[0].expressions
        pairs += [Term((one,)) for one in expressions if one.key not in NAME_KEYS]
        found = [Condition((term,)) for term in pairs]
    else:
        found = [Condition((term,)) for term in pairs] + ([Condition(shape.affinity)] if shape.affinity else [])
    ranks = {key: rank for rank, key in enumerate(_OF_PRODUCT)}
    return sorted(found, key=lambda one: ranks.get(one.only.key, len(ranks)) if one.only is not None else len(ranks))


def _text(one: Expression) -> str:
    values = ", ".join(one.values)
    match one.operator:
        case "In":
            return f"{one.key}={values}" if len(one.values) == 1 else f"{one.key} in ({values})"
        case "NotIn":
            return f"{one.key} other than {values}"
        case "Exists":
            return f"the label {one.key}"
        case "DoesNotExist":
            return f"no label {one.key}"
        case _:
            return f"{one.key} {'>' if one.operator == 'Gt' else '<'} {values}"


def none_has(shape: Shape, wanted: Sequence[Condition], own: Sequence[tuple[Mapping[str, str], int]]) -> str:
    """What no node has, after what some have: conditions one by one, each on the nodes that meet those before it.

    Args:
        shape: The pods.
        wanted: Its conditions.
        own: Labels of nodes of the resource, and how many have them.
    """
    left = own
    have: list[str] = []
    lacks: list[str] = []
    for one in wanted:
        meets = [(labels, nodes) for labels, nodes in left if one.holds(labels)]
        if meets:
            left = meets
            have.append(one.text)
        else:
            lacks.append(_lack(one, left))
    total = sum(nodes for _, nodes in left)
    kind = f" with {shape.resource}" if shape.resource else ""
    if not have:
        return f"of {pluralize(total, 'node')}{kind} {' and '.join(lacks)}"
    verb = "has" if total == 1 else "have"
    return f"{pluralize(total, 'node')} {verb} {' and '.join(have)}, {' and '.join(lacks)}"


def _lack(one: Condition, left: Sequence[tuple[Mapping[str, str], int]]) -> str:
    """That none of some nodes meets a condition, and what they have instead."""
    only = one.only
    if only is None:
        return f"none has {one.text}"
    if only.operator == "DoesNotExist":
        return f"all have the label {only.key}"
    values: Counter[str] = Counter()
    for labels, nodes in left:
        if only.key in labels:
            values[labels[only.key]] += nodes
    if not values:
        return f"none has the label {only.key}, of which the job asks {one.text}"
    ranked = sorted(values, key=lambda value: (-values[value], value))
    more = len(ranked) - _VALUES_MAX
    shown = ", ".join(value or "an empty value" for value in ranked[:_VALUES_MAX])
    it = "it has" if sum(nodes for _, nodes in left) == 1 else "they have"
    rest = f" and {pluralize(more, 'other value')}" if more > 0 else ""
    return f"none has {one.text}; {it} {shown}{rest}"


def by_name(shape: Shape, table: NodeTable) -> str:
    """Condition on the name of the node, if the class of nodes does not say whether it holds; empty without one."""
    pairs = [f"{name}={value}" for name, value in shape.selector if name in NAME_KEYS]
    if pairs and all(value not in table.row_of for name, value in shape.selector if name in NAME_KEYS):
        return f"{pairs[0]}, which no node has"
    terms = [term for term in shape.affinity if any(one.key in NAME_KEYS for one in term.expressions)]
    return ", ".join(pairs) or " or ".join(
        " and ".join(_text(one) for one in term.expressions if one.key in NAME_KEYS) for term in terms
    )
