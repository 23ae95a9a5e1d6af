"""Conditions on names, for all rows of a table at once, are what they are for one node after the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_classes import class_reason, key_of, name_fits
from berth.core.cluster.node_names import rows_by_name
from berth.schemas.constraints import Expression, Operator, Term
from berth.schemas.facts import NodeClass
from berth.schemas.offers import Shape
from tests.support.cells import a_node
from tests.support.core_cells import CoreCell

NAMES = ("n0", "n1", "7", "3", "n2")
LABELS: tuple[dict[str, str], ...] = ({}, {"zone": "red"}, {"zone": "blue"})
KEYS = st.sampled_from(("kubernetes.io/hostname", "metadata.name", "zone"))


def an_expression(key: str, operator: Operator, values: list[str]) -> Expression:
    if operator in {"Gt", "Lt"}:
        return Expression(key, operator, ("5",))
    return Expression(key, operator, tuple(values) if operator in {"In", "NotIn"} else ())


VALUES = st.lists(st.sampled_from((*NAMES, "red", "blue", "gone", "")), min_size=1, max_size=3, unique=True)
EXPRESSIONS = st.builds(
    an_expression, KEYS, st.sampled_from(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")), VALUES
)
TERMS = st.builds(lambda found: Term(tuple(found)), st.lists(EXPRESSIONS, max_size=3))
SHAPES = st.builds(
    lambda selector, terms: Shape("", "", 0, 0, selector=tuple(sorted(selector.items())), affinity=tuple(terms)),
    st.dictionaries(KEYS, st.sampled_from((*NAMES, "red")), max_size=2),
    st.lists(TERMS, max_size=3),
)


@given(shape=SHAPES, labels=st.lists(st.sampled_from(LABELS), min_size=len(NAMES), max_size=len(NAMES)))
def test_offers_and_names_together_are_what_selector_and_affinity_say(
    shape: Shape, labels: list[dict[str, str]]
) -> None:
    nodes = [a_node(name, labels=own) for name, own in zip(NAMES, labels, strict=True)]
    table = CoreCell(nodes).state.table
    own = {node.name: node.labels for node in nodes}
    expected = [name_fits(shape, name, own[name]) for name in table.names]
    found = rows_by_name(table, shape) if shape.names_nodes else [True] * len(table)
    offered = shape.offered
    assert not offered.names_nodes
    takes = [not class_reason(offered, key_of(NodeClass("p", "", own[name]))) for name in table.names]
    assert [bool(one) and other for one, other in zip(found, takes, strict=True)] == expected
    if shape.names_nodes:
        assert list(found) == expected
    reasons = [not class_reason(shape, key_of(NodeClass("p", "", own[name]))) for name in table.names]
    assert takes == reasons, "reasons of classes are those of the shape itself"


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "metadata.name"])
def test_shapes_that_differ_in_names_alone_are_offered_as_one(key: str) -> None:
    here = Expression("zone", "In", ("red",))
    shapes = [
        Shape("", "", 0, 0, cpu_milli=1, affinity=(Term((Expression(key, "In", ("n0",)), here)),)),
        Shape("", "", 0, 0, cpu_milli=1, affinity=(Term((Expression(key, "NotIn", ("n1", "n2")), here)),)),
        Shape("", "", 0, 0, cpu_milli=1, affinity=(Term((here,)),), selector=((key, "n0"),)),
    ]
    assert len({shape.offered for shape in shapes}) == 1
    assert shapes[0].offered.affinity == (Term((here,)),)
    assert shapes[0].offered.needs_marks, "a node that is named may be none of the best"


def test_a_term_of_names_alone_leaves_any_node_to_the_offers() -> None:
    pin, zone = Term((Expression("metadata.name", "In", ("n0",)),)), Term((Expression("zone", "In", ("red",)),))
    assert Shape("", "", 0, 0, affinity=(zone, pin)).offered.affinity == ()
    assert Shape("", "", 0, 0, affinity=(zone,)).offered.affinity == (zone,)
    none = Shape("", "", 0, 0, affinity=(Term(()),), selector=(("metadata.name", "n0"),))
    assert none.offered.affinity == (Term(()),), "it holds nowhere"
