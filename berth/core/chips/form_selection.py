"""Which product form a job gets, and the words that say why.

A missing or wrong ``accelerator-type`` on a job silently meant another product in the field, so every choice carries
its reason.

Source: docs/reference/nodes-and-chips.md, "Resource names", "Product forms" and "Selection of the form".
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from berth.core.chips.products import FORMS, Form
from berth.schemas.refusal import Code, Refusal

ASCEND_910: Final = "huawei.com/Ascend910"
NPU: Final = "huawei.com/npu"
ASCEND_310P: Final = "huawei.com/Ascend310P"
ASCEND_310: Final = "huawei.com/Ascend310"
RESOURCES: Final = (ASCEND_910, NPU, ASCEND_310P, ASCEND_310)

SCHEDULE_POLICY: Final = "huawei.com/schedule_policy"
SP_BLOCK: Final = "sp-block"
ACCELERATOR_TYPE: Final = "accelerator-type"
STRATEGY_310: Final = "npu-310-strategy"
DUO: Final = "duo"
DISTRIBUTED: Final = "distributed"

POLICIES: Final = {
    "chip4-node4": "half910x4",
    "chip1-node2": "card910x2",
    "chip8-node8": "module910bx8",
    "chip8-node16": "module910bx16",
    "chip2-node16": "module910a3x16",
    "chip2-node8": "module910a3x8",
    "module-a3-16": "module910a3x16",
    "chip2-node16-sp": "module910a3x16-sp",
    "chip2-node8-sp": "module910a3x8-sp",
    "chip4-node8": "chip4-node8",
    "chip4-node16": "chip4-node16",
    "chip1-node8": "chip1-node8",
    "chip1-node16": "chip1-node16",
    "chip8-node8-sp": "chip8-node8-sp",
    "chip8-node8-ra64-sp": "chip8-node8-ra64-sp",
    "chip1-softShareDev": "chip1-softShareDev",
    "multilevel": "multilevel",
}
"""Form by the value of the annotation ``huawei.com/schedule_policy``.

Source: docs/reference/nodes-and-chips.md, "Product forms" and "Selection of the form".
"""

ACCELERATORS: Final = {
    "module": "module910x8",
    "half": "half910x4",
    "module-910b-8": "module910bx8",
    "850-Atlas-8p-8": "module910bx8",
    "module-910b-16": "module910bx16",
    "module-a3-16": "module910a3x16",
    "module-a3-16-super-pod": "module910a3x16-sp",
    "module-a3-8-super-pod": "module910a3x8-sp",
}
"""Form by the node selector ``accelerator-type``, where its value does not contain ``card``.

Source: docs/reference/nodes-and-chips.md, "Product forms" and "Selection of the form".
"""

_VNPU: Final = re.compile(r"huawei\.com/[^-]*-.*", re.DOTALL)
"""A resource with a dash is a virtual NPU, static or dynamic.

Source: docs/reference/nodes-and-chips.md, "Resource names".
"""


class FormChoice(msgspec.Struct, frozen=True):
    """A product form and what it follows from, as words that complete "because".

    Attributes:
        is_guess: A value by which the job names its form is unknown and was passed over; ``because`` tells it.
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
        case "huawei.com/Ascend910" | "huawei.com/npu":
            return _choose_910(resource, annotations, selector)
        case "huawei.com/Ascend310P":
            return _choose_310p(labels)
        case "huawei.com/Ascend310":
            return _choose_310(labels)
        case _ if _VNPU.fullmatch(resource):
            return _refuse("unsupported-vnpu", "resource", resource, f"whole chips: one of {', '.join(RESOURCES)}")
        case _:
            return _refuse("unsupported-policy", "resource", resource, f"one of {', '.join(RESOURCES)}")


def _choose_910(resource: str, annotations: Mapping[str, str], selector: Mapping[str, str]) -> FormChoice | Refusal:
    policy = annotations.get(SCHEDULE_POLICY)
    if policy in POLICIES:
        return _choice(POLICIES[policy], f"annotation {SCHEDULE_POLICY} is {policy}")
    if policy is None and resource == NPU:
        return _refuse(
            "unsupported-policy",
            f"annotations.{SCHEDULE_POLICY}",
            "",
            f"jobs for {NPU} must name one of {', '.join(sorted(POLICIES))}",
        )
    unknown = "" if policy is None else f"annotation {SCHEDULE_POLICY} has the unknown value {policy!r}, and "
    chosen = _choose_by_selector(unknown, annotations, selector)
    return msgspec.structs.replace(chosen, is_guess=bool(unknown)) if isinstance(chosen, FormChoice) else chosen


def _choose_by_selector(
    unknown: str, annotations: Mapping[str, str], selector: Mapping[str, str]
) -> FormChoice | Refusal:
    """Form of a job whose policy is absent or unknown; ``unknown`` says so, as the first words of the reason."""
    accelerator = selector.get(ACCELERATOR_TYPE)
    said = f"node selector {ACCELERATOR_TYPE} is {accelerator}"
    if SP_BLOCK in annotations:
        small = accelerator == "module-a3-8-super-pod"
        name = "module910a3x8-sp" if small else "module910a3x16-sp"
        return _choice(name, f"{unknown}annotation {SP_BLOCK} is set" + (f" and {said}" if small else ""))
    if accelerator is None:
        return _choice("module910x8", f"{unknown}the job has no node selector {ACCELERATOR_TYPE}")
    if "card" in accelerator:
        return _choice("card910x2", f"{unknown}{said}")
    if accelerator in ACCELERATORS:
        return _choice(ACCELERATORS[accelerator], f"{unknown}{said}")
    return _refuse(
        "unsupported-policy",
        f"node_selector.{ACCELERATOR_TYPE}",
        accelerator,
        f"one of {', '.join(sorted(ACCELERATORS))}, or a value with 'card' in it",
    )


def _choose_310p(labels: Mapping[str, str]) -> FormChoice:
    if labels.get(DUO) != "true":
        return _choice("310p", f"resource is {ASCEND_310P} and label {DUO} is not true")
    strategy = labels.get(STRATEGY_310, "chip")
    said = f"label {DUO} is true"
    if strategy == "card":
        return _choice("310p-duo-card", f"{said} and {STRATEGY_310} is card")
    if strategy != "chip":
        chosen = _choice("310p", f"label {STRATEGY_310} has the unknown value {strategy!r}")
        return msgspec.structs.replace(chosen, is_guess=True)
    if labels.get(DISTRIBUTED) == "true":
        return _choice("310p-duo-chip-distributed", f"{said} and {DISTRIBUTED} is true")
    return _choice("310p-duo-chip", said)


def _choose_310(labels: Mapping[str, str]) -> FormChoice | Refusal:
    strategy = labels.get(STRATEGY_310)
    if strategy is None:
        return _choice("310-chip", f"resource is {ASCEND_310} and label {STRATEGY_310} is absent")
    if strategy in {"chip", "card"}:
        return _choice(f"310-{strategy}", f"label {STRATEGY_310} is {strategy}")
    return _refuse("unsupported-policy", f"labels.{STRATEGY_310}", strategy, "chip or card")


def _choice(name: str, because: str) -> FormChoice:
    return FormChoice(FORMS[name], because)


def _refuse(code: Code, field: str, value: str, expected: str) -> Refusal:
    return Refusal(code=code, field=field, value=value, expected=expected)
