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
    """Name of the job, unique among the jobs of its namespace that are not over."""
    namespace: str = "default"
    """Namespace of the job."""
    uid: str = ""
    """Idempotency key; empty: Berth makes one for each request, so that a repeated request is another one. At
    most 1,000 characters; not ``intake-`` and a number, as Berth makes them."""
    labels: dict[str, str] = {}
    """Labels of the job, such as ``tor-affinity`` and ``fault-scheduling``."""
    annotations: dict[str, str] = {}
    """Annotations of the job, such as ``sp-block`` and ``huawei.com/schedule_policy``."""


class SoftShare(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Part of one chip that each pod takes."""

    aicore: Annotated[int, Meta(ge=1, le=100)]
    """Percent of the cores."""
    hbm_mib: Annotated[int, Meta(ge=1)] = msgspec.field(name="hbmMib")
    """Memory of the chip, in MiB."""
    policy: Literal["fixed-share", "elastic", "best-effort"]
    """How the cores are divided. Jobs share a chip only with jobs of the same policy."""


class JobTask(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Equal pods."""

    name: str
    """Name of the task, unique in the job."""
    replicas: Count = 1
    """Number of pods."""
    chips: Count = 0
    """Chips of each pod."""
    cpu: Quantity = 0
    """CPUs of each pod, such as ``4`` or ``3500m``."""
    memory: Quantity = 0
    """Memory of each pod, such as ``16Gi``; a number is bytes."""
    node_selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)
    """Labels that the nodes must have, in addition to those of the job."""
    affinity: dict[str, Any] = {}
    """Node affinity in the terms of Kubernetes."""
    tolerations: list[dict[str, Any]] = []
    """Taints that the pods tolerate, as in Kubernetes."""


class JobSpec(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """What the job asks for. With ``tasks``, the fields of the pods are in each of them."""

    product: str = ""
    """Product of Berth, such as ``module910bx8``; it sets the resource and the selector."""
    resource: str = ""
    """Resource name of the chips, instead of a product."""
    policy: str = ""
    """Value of the annotation ``huawei.com/schedule_policy``, which selects a product form; a product sets it."""
    queue: str = "default"
    """Name of the queue, for display."""
    priority: int = 0
    """Jobs of a higher priority are tried first."""
    min_available: Count = msgspec.field(name="minAvailable", default=0)
    """Pods that must start together; 0: all of them."""
    run_for: str | int = msgspec.field(name="runFor", default="")
    """Expected run time, such as ``30m``."""
    node_selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)
    """Labels that the nodes of all pods must have."""
    soft_share: SoftShare | None = msgspec.field(name="softShare", default=None)
    """Each pod takes a part of one chip."""
    near: dict[str, str] = {}
    """Labels of pods near which the job prefers to run."""
    tasks: list[JobTask] = []
    """Several kinds of pods; the fields below are then given in each of them."""
    replicas: Count = 1
    """Number of pods."""
    chips: Count = 0
    """Chips of each pod."""
    cpu: Quantity = 0
    """CPUs of each pod, such as ``4`` or ``3500m``."""
    memory: Quantity = 0
    """Memory of each pod, such as ``16Gi``; a number is bytes."""
    affinity: dict[str, Any] = {}
    """Node affinity in the terms of Kubernetes."""
    tolerations: list[dict[str, Any]] = []
    """Taints that the pods tolerate, as in Kubernetes."""


class JobFile(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """A job."""

    api_version: str = msgspec.field(name="apiVersion", default="berth/v1")
    """``berth/v1``; a file must name it."""
    kind: str = "Job"
    """``Job``; a file must name it."""
    metadata: JobMetadata
    """Name and labels."""
    spec: JobSpec
    """What it asks for."""
