"""Products and frameworks that each policy of switch affinity supports.

Any other job is placed with a warning, unless the setting ``strict_product_support`` rejects it.

Source: docs/reference/switches.md, "Jobs and policies". See decision ``strict_product_support``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from berth.core.chips.products import FORMS
from berth.core.switches.planner import Policy


class _Support(NamedTuple):
    """Products and frameworks of a policy; no frameworks means any."""

    title: str
    products: str
    forms: frozenset[str]
    frameworks: tuple[tuple[str, str], ...]
    """Value of the label in lower case, and its usual spelling."""


_A2: Final = frozenset({"module910bx8", "module910bx16"})
_SUPPORT: Final[Mapping[Policy, _Support]] = {
    "1.0": _Support(
        "switch affinity 1.0",
        "Atlas training products and Atlas A2 training products",
        _A2 | {"module910x8", "half910x4", "card910x2"},
        (("pytorch", "PyTorch"), ("mindspore", "MindSpore")),
    ),
    "2.0": _Support("switch affinity 2.0", "Atlas A2 training products", _A2, (("pytorch", "PyTorch"),)),
    "single-layer": _Support(
        "switch affinity of a single layer", "Atlas 800I A2 servers and the A200I A2 Box", _A2, ()
    ),
}


def unsupported(policy: Policy, *, form: str, framework: str, shares_chips: bool) -> str:
    """Why a policy does not support a job, as a sentence without a full stop; empty if it does.

    Args:
        policy: Policy in force.
        form: Product form of the job.
        framework: Its label ``framework``, case-insensitive; empty if it is missing, which is supported.
        shares_chips: Its pods share chips with other pods.
    """
    support = _SUPPORT[policy]
    if shares_chips:
        return f"{support.title} is meant for whole chips, not for shares of them"
    if form not in support.forms:
        return f"{support.title} is meant for {support.products}, not for {_product(form)}"
    if framework and support.frameworks and framework.lower() not in dict(support.frameworks):
        known = " and ".join(spelling for _, spelling in support.frameworks)
        return f"{support.title} is meant for {known}, not for {framework}"
    return ""


def _product(form: str) -> str:
    """Product of a form, without its number of chips."""
    known = FORMS.get(form)
    return known.title.split(",")[0] if known is not None else form or "a product that is not known"
