"""Labels, taints, cordon and names, as Kubernetes reads them."""

import pytest

from berth.core.cluster.node_classes import class_reason, key_of, name_fits
from berth.schemas.constraints import Expression, Operator, Taint, TaintEffect, Term, Toleration
from berth.schemas.facts import NodeClass
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

LABELS = {"zone": "red", "size": "7", "odd": "1_000"}


def a_shape(**changes: object) -> Shape:
    return Shape(**({"form": "", "resource": "", "chips": 0, "gang_pods": 0} | changes))  # type: ignore[arg-type]


def reason(shape: Shape, *, taints: tuple[Taint, ...] = (), cordoned: bool = False, ready: bool = True) -> NodeReason:
    return class_reason(shape, key_of(NodeClass("p", "chips", LABELS, list(taints), cordoned, ready)))


@pytest.mark.parametrize(
    ("key", "operator", "values", "holds"),
    [
        ("zone", "In", ("blue", "red"), True),
        ("zone", "In", ("blue",), False),
        ("none", "In", ("red",), False),
        ("zone", "NotIn", ("blue",), True),
        ("zone", "NotIn", ("red",), False),
        ("none", "NotIn", ("red",), True),
        ("zone", "Exists", (), True),
        ("none", "Exists", (), False),
        ("none", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("size", "Gt", ("6",), True),
        ("size", "Gt", ("7",), False),
        ("size", "Lt", ("8",), True),
        ("size", "Lt", ("7",), False),
        ("size", "Gt", ("-1",), True),
        ("size", "Gt", ("6", "5"), False),
        ("size", "Gt", ("x",), False),
        ("zone", "Gt", ("1",), False),
        ("none", "Lt", ("1",), False),
        ("odd", "Gt", ("1",), False),
    ],
)
def test_an_operator_means_what_it_means_in_kubernetes(
    key: str, operator: Operator, values: tuple[str, ...], *, holds: bool
) -> None:
    shape = a_shape(affinity=(Term((Expression(key, operator, values),)),))
    assert (reason(shape) == NodeReason.FITS) is holds
    assert name_fits(shape, "n", LABELS) is holds


def test_one_term_is_enough_and_all_conditions_of_a_term_must_hold() -> None:
    red, large = Expression("zone", "In", ("red",)), Expression("size", "Gt", ("9",))
    assert reason(a_shape(affinity=(Term((red, large)),))) == NodeReason.SELECTOR
    assert reason(a_shape(affinity=(Term((large,)), Term((red,))))) == NodeReason.FITS


def test_a_term_without_conditions_matches_no_node() -> None:
    on_other_name = Term((Expression("metadata.name", "In", ("other",)),))
    assert reason(a_shape(affinity=(Term(()),))) == NodeReason.SELECTOR
    assert not name_fits(a_shape(affinity=(Term(()), on_other_name)), "n", LABELS)


@pytest.mark.parametrize(
    ("taint", "toleration", "fits"),
    [
        (Taint("k", "v"), None, False),
        (Taint("k", "v", "NoExecute"), None, False),
        (Taint("k", "v", "PreferNoSchedule"), None, True),
        (Taint("k", "v"), Toleration("k", "Equal", "v"), True),
        (Taint("k", "v"), Toleration("k", "Equal", "w"), False),
        (Taint("k", "v"), Toleration("k", "Exists"), True),
        (Taint("k", "v"), Toleration("other", "Exists"), False),
        (Taint("k", "v"), Toleration(operator="Exists"), True),
        (Taint("k", "v"), Toleration("k", "Exists", effect="NoSchedule"), True),
        (Taint("k", "v"), Toleration("k", "Exists", effect="NoExecute"), False),
        (Taint("k"), Toleration("k"), True),
    ],
)
def test_a_taint_keeps_away_who_does_not_tolerate_it(
    taint: Taint, toleration: Toleration | None, *, fits: bool
) -> None:
    shape = a_shape(tolerations=(toleration,) if toleration is not None else ())
    assert reason(shape, taints=(taint,)) == (NodeReason.FITS if fits else NodeReason.TAINT)


def test_every_taint_must_be_tolerated() -> None:
    shape = a_shape(tolerations=(Toleration("a", "Exists"),))
    assert reason(shape, taints=(Taint("a"), Taint("b"))) == NodeReason.TAINT


@pytest.mark.parametrize(
    ("key", "effect", "fits"),
    [("node.kubernetes.io/unschedulable", "NoSchedule", True), ("", "", True), ("other", "", False)],
)
def test_a_cordon_is_a_taint_that_can_be_tolerated(key: str, effect: TaintEffect, *, fits: bool) -> None:
    shape = a_shape(tolerations=(Toleration(key, "Exists", effect=effect),))
    assert reason(shape, cordoned=True) == (NodeReason.FITS if fits else NodeReason.CORDONED)


def test_the_first_reason_in_the_order_of_checks_counts() -> None:
    shape = a_shape(resource="other", selector=(("zone", "blue"),))
    taints = (Taint("k"),)
    assert reason(shape, taints=taints, cordoned=True, ready=False) == NodeReason.OTHER_RESOURCE
    mine = a_shape(resource="chips", selector=(("zone", "blue"),))
    assert reason(mine, taints=taints, cordoned=True, ready=False) == NodeReason.NOT_READY
    assert reason(mine, taints=taints, cordoned=True) == NodeReason.CORDONED
    assert reason(mine, taints=taints) == NodeReason.SELECTOR


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "metadata.name"])
def test_a_condition_on_the_name_is_left_to_the_node(key: str) -> None:
    by_selector = a_shape(selector=((key, "n1"), ("zone", "red")))
    by_affinity = a_shape(affinity=(Term((Expression(key, "In", ("n1",)), Expression("zone", "In", ("red",)))),))
    for shape in (by_selector, by_affinity):
        assert shape.names_nodes
        assert reason(shape) == NodeReason.FITS
        assert name_fits(shape, "n1", LABELS)
        assert not name_fits(shape, "n2", LABELS)
        assert not name_fits(shape, "n1", {"zone": "blue"})
    assert not a_shape(selector=(("zone", "red"),)).names_nodes


def test_equal_nodes_share_a_class_whatever_the_order_of_their_taints() -> None:
    one = NodeClass("p", "r", {"a": "1", "b": "2"}, [Taint("x"), Taint("y")])
    other = NodeClass("p", "r", {"b": "2", "a": "1"}, [Taint("y"), Taint("x")])
    assert key_of(one) == key_of(other)
    assert hash(key_of(one)) == hash(key_of(other))
