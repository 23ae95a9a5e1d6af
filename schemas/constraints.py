"""Conditions of a pod on nodes besides chips: labels and taints, in the terms of Kubernetes."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from berth.schemas.message import Part

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
TolerationOperator = Literal["Equal", "Exists"]
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
NAME_KEYS: Final = frozenset({"kubernetes.io/hostname", "metadata.name"})
"""Labels and fields of a node whose value is its name."""


class Expression(Part, frozen=True):
    """One condition on a label, or on the field ``metadata.name``."""

    key: Annotated[str, Meta(min_length=1)]
    operator: Operator
    values: tuple[str, ...] = ()


class Term(Part, frozen=True):
    """Conditions that must all hold. A list of terms holds when one of them does."""

    expressions: tuple[Expression, ...]


class Toleration(Part, frozen=True):
    """A taint that the pod accepts; an empty key with ``Exists`` accepts all, an empty effect every effect."""

    key: str = ""
    operator: TolerationOperator = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Taint(Part, frozen=True):
    """Taint of a node, which repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: TaintEffect = "NoSchedule"
