"""Base of the lean structs, and the parts that objects of several kinds share: metadata and selectors."""

import msgspec


class Lean(msgspec.Struct, rename="camel", frozen=True, gc=False, kw_only=True):
    """Base of the objects."""


class OwnerReference(Lean, frozen=True):
    """An object that an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Lean, frozen=True):
    """Metadata of an object. Times are RFC 3339 texts."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object; None without one."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    def label(self, key: str, default: str = "") -> str:
        """Value of a label; empty without it."""
        return (self.labels or {}).get(key, default)

    def annotation(self, key: str, default: str = "") -> str:
        """Value of an annotation; empty without it."""
        return (self.annotations or {}).get(key, default)


class SelectorRequirement(Lean, frozen=True):
    """One condition of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class SelectorTerm(Lean, frozen=True):
    """Conditions that must all hold."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Lean, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[SelectorTerm] | None = None


class LabelSelector(Lean, frozen=True):
    """Label selector; both parts must hold."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None
