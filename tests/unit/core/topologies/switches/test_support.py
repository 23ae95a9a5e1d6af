"""Products and frameworks that each policy of switch affinity is meant for."""

import pytest

from berth.core.topologies.switches.planner import Policy
from berth.core.topologies.switches.support import unsupported

OLD = ("module910x8", "half910x4", "card910x2")
A2 = ("module910bx8", "module910bx16")
OTHERS = ("module910a3x16", "module910a3x8", "chip1-node8", "chip4-node8", "310-card", "310p-card")


def _said(policy: Policy, form: str, framework: str = "", *, shares_chips: bool = False) -> str:
    return unsupported(policy, form=form, framework=framework, shares_chips=shares_chips)


@pytest.mark.parametrize(
    ("policy", "inside", "outside"),
    [("1.0", OLD + A2, OTHERS), ("2.0", A2, OLD + OTHERS), ("single-layer", A2, OLD + OTHERS)],
)
def test_products(policy: Policy, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    assert [form for form in inside if _said(policy, form)] == []
    assert [form for form in outside if not _said(policy, form)] == []


@pytest.mark.parametrize(
    ("policy", "inside", "outside"),
    [
        ("1.0", ("", "pytorch", "PyTorch", "MindSpore", "MINDSPORE"), ("tensorflow", "torch")),
        ("2.0", ("", "pytorch", "PYTORCH"), ("mindspore", "tensorflow")),
        ("single-layer", ("", "pytorch", "mindspore", "tensorflow", "anything"), ()),
    ],
)
def test_frameworks(policy: Policy, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    assert [name for name in inside if _said(policy, "module910bx8", name)] == []
    assert [name for name in outside if not _said(policy, "module910bx8", name)] == []


def test_what_is_said() -> None:
    assert (
        _said("2.0", "module910x8", "pytorch")
        == "switch affinity 2.0 is meant for Atlas A2 training products, not for 910A module"
    )
    assert (
        _said("1.0", "module910a3x16")
        == "switch affinity 1.0 is meant for Atlas training products and Atlas A2 training products, not for A3"
    )
    assert _said("2.0", "module910bx8", "MindSpore") == "switch affinity 2.0 is meant for PyTorch, not for MindSpore"
    assert (
        _said("1.0", "module910bx8", "tensorflow")
        == "switch affinity 1.0 is meant for PyTorch and MindSpore, not for tensorflow"
    )
    assert (
        _said("single-layer", "module910x8")
        == "switch affinity of a single layer is meant for Atlas 800I A2 servers and the A200I A2 Box, not for 910A module"
    )


@pytest.mark.parametrize("policy", ["1.0", "2.0", "single-layer"])
def test_shares_of_chips_are_outside_of_all(policy: Policy) -> None:
    assert "whole chips" in _said(policy, "module910bx8", "pytorch", shares_chips=True)
