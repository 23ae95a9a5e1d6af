"""Products and frameworks that each policy of switch affinity supports.

The products are in the catalogue (``Form.switch_affinity``). Any other job is placed with a warning, unless the setting
``strict_product_support`` rejects it.

Source: docs/reference/switches.md, "Jobs and policies". See decision ``strict_product_support``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from berth.core.topologies.switches.planner import Policy
from berth.products.catalogue import FORMS
from berth.products.model import Form


class _Support(NamedTuple):
    """What a policy supports: its name, its products in text, and its frameworks; no frameworks means any."""

    title: str
    products: str
    frameworks: tuple[tuple[str, str], ...]
    """Value of the label in lower case, and its usual spelling."""


_SUPPORT: Final[Mapping[Policy, _Support]] = {
    "1.0": _Support(
        "switch affinity 1.0",
        "Atlas training products and Atlas A2 training products",
        (("pytorch", "PyTorch"), ("mindspore", "MindSpore")),
    ),
    "2.0": _Support("switch affinity 2.0", "Atlas A2 training products", (("pytorch", "PyTorch"),)),
    "single-layer": _Support("switch affinity of a single layer", "Atlas 800I A2 servers and the A200I A2 Box", ()),
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
    known = FORMS.get(form)
    if known is None or policy not in known.switch_affinity:
        return f"{support.title} is meant for {support.products}, not for {_product(form, known)}"
    if framework and support.frameworks and framework.lower() not in dict(support.frameworks):
        named = " and ".join(spelling for _, spelling in support.frameworks)
        return f"{support.title} is meant for {named}, not for {framework}"
    return ""


def _product(form: str, known: Form | None) -> str:
    """Product of a form, without the part of its title that describes its chips."""
    return known.title.split(",")[0] if known is not None else form or "a product that is not known"
