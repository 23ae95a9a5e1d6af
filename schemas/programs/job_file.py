"""Job file of Berth as a program writes it.

These types describe the file for other languages and for typed clients. The service reads the file with
``berth.formats.manifests``, which also gives the errors.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from berth.schemas.intake import ANNOTATIONS, LABELS, TASKS, UID, Name, Priority
from berth.schemas.programs.shape import Sent, Shape

_PODS_MAX: Final = 1_000_000
_NUMBER_MAX: Final = (1 << 31) - 1
Count = Annotated[int, Meta(ge=0, le=_PODS_MAX)]
Label = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")]
"""A name of one part."""
Word = Annotated[str, Meta(min_length=1)]
Quantity = float | str
"""A number, or a text with a unit of Kubernetes, such as ``16Gi`` or ``500m``."""
Chips = Annotated[int, Meta(ge=0)] | str
"""A whole number, also as a text."""


class JobMetadata(Sent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Identity of the job."""

    name: Name
    """Name of the job, unique among the jobs of its namespace that are not over."""
    namespace: Label = "default"
    """Namespace of the job."""
    uid: Annotated[str, Meta(min_length=1, max_length=UID.most)] = ""
    """Idempotency key; without it Berth makes one for each request, so that a repeated request is another one. At
    most 1,000 characters; not ``intake-`` and a number, as Berth makes them."""
    labels: Annotated[dict[str, str], Meta(max_length=LABELS.most)] = {}
    """Labels of the job, such as ``tor-affinity`` and ``fault-scheduling``."""
    annotations: Annotated[dict[str, str], Meta(max_length=ANNOTATIONS.most)] = {}
    """Annotations of the job, such as ``sp-block`` and ``huawei.com/schedule_policy``."""


class SoftShare(Sent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Part of one chip that each pod takes."""

    aicore: Annotated[int, Meta(ge=1, le=100)]
    """Percent of the cores."""
    hbm_mib: Annotated[int, Meta(ge=1, le=_NUMBER_MAX)] = msgspec.field(name="hbmMib")
    """Memory of the chip, in MiB."""
    policy: Literal["fixed-share", "elastic", "best-effort"]
    """How the cores are divided. Jobs share a chip only with jobs of the same policy."""


class JobTask(Sent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Equal pods."""

    name: Label
    """Name of the task, unique in the job."""
    replicas: Count = 1
    """Number of pods."""
    chips: Chips = 0
    """Chips of each pod."""
    cpu: Quantity = 0
    """CPUs of each pod, such as ``4`` or ``3500m``."""
    memory: Quantity = 0
    """Memory of each pod, such as ``16Gi``; a number is bytes."""
    node_selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)
    """Labels that the nodes must have, in addition to those of the job."""
    affinity: list[dict[str, Any]] = []
    """Required node affinity: ``nodeSelectorTerms`` of Kubernetes, one of which must hold."""
    tolerations: list[dict[str, Any]] = []
    """Taints that the pods tolerate, as in Kubernetes."""


class JobSpec(Sent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the job asks for. With ``tasks``, the fields of the pods are in each of them."""

    product: Word = ""
    """Product of Berth, such as ``module910bx8``; it sets the resource and the selector."""
    resource: Word = ""
    """Resource name of the chips, instead of a product."""
    policy: Word = ""
    """Value of the annotation ``huawei.com/schedule_policy``, which selects a product form; a product sets it."""
    queue: Name = "default"
    """Name of the queue, which limits and orders jobs where the cell applies queues."""
    priority: Priority = 0
    """Jobs of a higher priority are tried first."""
    min_available: Count = msgspec.field(name="minAvailable", default=0)
    """Pods that must start together; 0: all of them."""
    run_for: Word | Literal[0] = msgspec.field(name="runFor", default="")
    """Expected run time, such as ``30m``."""
    node_selector: dict[str, str] = msgspec.field(name="nodeSelector", default_factory=dict)
    """Labels that the nodes of all pods must have."""
    soft_share: SoftShare | None = msgspec.field(name="softShare", default=None)
    """Each pod takes a part of one chip."""
    near: dict[str, str] = {}
    """Labels of pods near which the job prefers to run."""
    tasks: Annotated[list[JobTask], Meta(max_length=TASKS.most)] = []
    """Several kinds of pods; the fields below are then given in each of them."""
    replicas: Count = 1
    """Number of pods."""
    chips: Chips = 0
    """Chips of each pod."""
    cpu: Quantity = 0
    """CPUs of each pod, such as ``4`` or ``3500m``."""
    memory: Quantity = 0
    """Memory of each pod, such as ``16Gi``; a number is bytes."""
    affinity: list[dict[str, Any]] = []
    """Required node affinity: ``nodeSelectorTerms`` of Kubernetes, one of which must hold."""
    tolerations: list[dict[str, Any]] = []
    """Taints that the pods tolerate, as in Kubernetes."""


class JobFile(Sent, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job. A field that is null counts as missing."""

    api_version: Literal["berth/v1"] = msgspec.field(name="apiVersion", default="berth/v1")
    """``berth/v1``; a file must name it."""
    kind: Literal["Job"] = "Job"
    """``Job``; a file must name it."""
    metadata: JobMetadata
    """Name and labels."""
    spec: JobSpec
    """What it asks for."""


class OtherJob(Shape, frozen=True, kw_only=True):
    """A Volcano Job, an AscendJob or a Kubernetes Job, with its own fields."""

    api_version: Literal["batch.volcano.sh/v1alpha1", "mindxdl.gitee.com/v1", "batch/v1"] = msgspec.field(
        name="apiVersion"
    )
    """Its version."""
    kind: Literal["Job", "AscendJob"]
    """Its kind."""
    metadata: dict[str, Any]
    """Name, namespace, labels and annotations; ``uid`` is the idempotency key."""
    spec: dict[str, Any]
    """What it asks for."""
