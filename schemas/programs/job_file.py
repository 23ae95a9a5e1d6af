"""Job file of Berth as a program writes it.

These types describe the file for other languages and for typed clients. The service reads the file with
``berth.formats.manifests``, which also gives the errors.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from berth.schemas.programs.shape import Shape

Count = Annotated[int, Meta(ge=0)]
Quantity = int | str
"""A number, or a text with a unit of Kubernetes, such as ``16Gi`` or ``500m``."""


class JobMetadata(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Identity of the job."""

    name: str
    namespace: str = "default"
    uid: str = ""
    """Idempotency key; empty: Berth makes one for each request, so that a repeated request is another one."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class SoftShare(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Part of one chip that each pod takes."""

    aicore: Annotated[int, Meta(ge=1, le=100)]
    """Percent of the cores."""
    hbm_mib: Annotated[int, Meta(ge=1)] = msgspec.field(name="hbmMib")
    policy: Literal["fixed-share", "elastic", "best-effort"]


class JobTask(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Equal pods."""

    name: str
    replicas: Count = 1
    chips: Count = 0
    """Chips of each pod."""
    cpu: Quantity = 0
    memory: Quantity = 0
    node_selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)
    affinity: dict[str, Any] = {}
    """Node affinity in the terms of Kubernetes."""
    tolerations: list[dict[str, Any]] = []


class JobSpec(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """What the job asks for. With ``tasks``, the fields of the pods are in each of them."""

    product: str = ""
    """Product of Berth, such as ``module910bx8``; it sets the resource and the selector."""
    resource: str = ""
    """Resource name of the chips, instead of a product."""
    policy: str = ""
    queue: str = "default"
    priority: int = 0
    min_available: Count = msgspec.field(name="minAvailable", default=0)
    """Pods that must start together; 0: all of them."""
    run_for: str | int = msgspec.field(name="runFor", default="")
    """Expected run time, such as ``30m``."""
    node_selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)
    soft_share: SoftShare | None = msgspec.field(name="softShare", default=None)
    near: dict[str, str] = {}
    """Labels of pods near which the job prefers to run."""
    tasks: list[JobTask] = []
    replicas: Count = 1
    chips: Count = 0
    """Chips of each pod."""
    cpu: Quantity = 0
    memory: Quantity = 0
    affinity: dict[str, Any] = {}
    tolerations: list[dict[str, Any]] = []


class JobFile(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A job."""

    api_version: str = msgspec.field(name="apiVersion", default="berth/v1")
    kind: str = "Job"
    metadata: JobMetadata
    spec: JobSpec
