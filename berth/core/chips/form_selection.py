"""Which product form a job gets, and a text with the reason.

The values that name a form are in the product catalogue. A missing or wrong ``accelerator-type`` of a job silently
leads to another product in the field, so every choice carries its reason.

Source: docs/reference/nodes-and-chips.md, "Resource names", "Product forms" and "Selection of the form".
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from berth.products.catalogue import ACCELERATOR_TYPES, FORMS, POLICIES
from berth.products.model import (
    ANNOTATION_POLICY,
    LABEL_TYPE,
    RESOURCE_310,
    RESOURCE_310P,
    RESOURCE_NPU,
    Form,
)
from berth.products.resources import MIXED_CARDS, RESOURCES, is_chips, is_virtual
from berth.schemas.refusal import Code, Refusal

SP_BLOCK: Final = "sp-block"
STRATEGY_310: Final = "npu-310-strategy"
DUO: Final = "duo"
DISTRIBUTED: Final = "distributed"


class FormChoice(msgspec.Struct, frozen=True):
    """A product form and its reason, a text that completes "because".

    Attributes:
        is_guess: A value by which the job names its form is unknown and was ignored; ``because`` reports it.
    """

    form: Form
    because: str
    is_guess: bool = False


def choose_form(
    *,
    resource: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    selector: Mapping[str, str],
) -> FormChoice | Refusal:
    """Product form of a job that asks for chips; it may be one that this release does not place.

    Args:
        resource: Resource name of the chips.
        labels: Labels of the job.
        annotations: Annotations of the job.
        selector: Node selector of the job.

    Source: docs/reference/nodes-and-chips.md, "Product forms" and "Selection of the form".
    """
    match resource:
        case "huawei.com/Ascend310P":
            return _choose_310p(labels)
        case "huawei.com/Ascend310":
            return _choose_310(labels)
        case _ if is_chips(resource):
            return _choose_910(resource, annotations, selector)
        case _:
            return refused_resource(resource)


def refused_resource(resource: str) -> Refusal:
    """Refusal of a resource that is not whole chips of a product, as if it were chips."""
    whole = ", ".join(RESOURCES)
    if resource in MIXED_CARDS:
        expected = f"one of {whole}: 310P cards of several kinds in one node are not placed"
        return _refuse("unsupported-policy", "resource", resource, expected)
    if is_virtual(resource):
        return _refuse("unsupported-vnpu", "resource", resource, f"whole chips, no virtual NPUs: one of {whole}")
    return _refuse("unsupported-policy", "resource", resource, f"one of {whole}")


def _choose_910(resource: str, annotations: Mapping[str, str], selector: Mapping[str, str]) -> FormChoice | Refusal:
    policy = annotations.get(ANNOTATION_POLICY)
    if policy is not None and policy in POLICIES:
        return _choice(POLICIES[policy], f"annotation {ANNOTATION_POLICY} is {policy}")
    if policy is None and resource == RESOURCE_NPU:
        return _refuse(
            "unsupported-policy",
            f"annotations.{ANNOTATION_POLICY}",
            "",
            f"jobs for {RESOURCE_NPU} must name one of {', '.join(sorted(POLICIES))}",
        )
    unknown = "" if policy is None else f"annotation {ANNOTATION_POLICY} has the unknown value {policy!r}, and "
    chosen = _choose_by_selector(unknown, annotations, selector)
    return msgspec.structs.replace(chosen, is_guess=bool(unknown)) if isinstance(chosen, FormChoice) else chosen


def _choose_by_selector(
    unknown: str, annotations: Mapping[str, str], selector: Mapping[str, str]
) -> FormChoice | Refusal:
    """Form of a job whose policy is absent or unknown; ``unknown`` is that part of the reason."""
    accelerator = selector.get(LABEL_TYPE)
    reason = f"node selector {LABEL_TYPE} is {accelerator}"
    if SP_BLOCK in annotations:
        small = accelerator == "module-a3-8-super-pod"
        name = "module910a3x8-sp" if small else "module910a3x16-sp"
        return _choice(name, f"{unknown}annotation {SP_BLOCK} is set" + (f" and {reason}" if small else ""))
    if accelerator is None:
        return _choice("module910x8", f"{unknown}the job has no node selector {LABEL_TYPE}")
    if "card" in accelerator:
        return _choice("card910x2", f"{unknown}{reason}")
    if accelerator in ACCELERATOR_TYPES:
        return _choice(ACCELERATOR_TYPES[accelerator], f"{unknown}{reason}")
    return _refuse(
        "unsupported-policy",
        f"node_selector.{LABEL_TYPE}",
        accelerator,
        f"one of {', '.join(sorted(ACCELERATOR_TYPES))}, or a value with 'card' in it",
    )


def _choose_310p(labels: Mapping[str, str]) -> FormChoice:
    if labels.get(DUO) != "true":
        return _choice("310p", f"resource is {RESOURCE_310P} and label {DUO} is not true")
    strategy = labels.get(STRATEGY_310, "chip")
    reason = f"label {DUO} is true"
    if strategy == "card":
        return _choice("310p-duo-card", f"{reason} and {STRATEGY_310} is card")
    if strategy != "chip":
        chosen = _choice("310p", f"label {STRATEGY_310} has the unknown value {strategy!r}")
        return msgspec.structs.replace(chosen, is_guess=True)
    if labels.get(DISTRIBUTED) == "true":
        return _choice("310p-duo-chip-distributed", f"{reason} and {DISTRIBUTED} is true")
    return _choice("310p-duo-chip", reason)


def _choose_310(labels: Mapping[str, str]) -> FormChoice | Refusal:
    strategy = labels.get(STRATEGY_310)
    if strategy is None:
        return _choice("310-chip", f"resource is {RESOURCE_310} and label {STRATEGY_310} is absent")
    if strategy in {"chip", "card"}:
        return _choice(f"310-{strategy}", f"label {STRATEGY_310} is {strategy}")
    return _refuse("unsupported-policy", f"labels.{STRATEGY_310}", strategy, "chip or card")


def _choice(name: str, because: str) -> FormChoice:
    return FormChoice(FORMS[name], because)


def _refuse(code: Code, field: str, value: str, expected: str) -> Refusal:
    return Refusal(code=code, field=field, value=value, expected=expected)
