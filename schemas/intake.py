"""Messages of users and of ``inventory``: job requests, cancellations and changes, and how large a request may be."""

from typing import Annotated, ClassVar, Final, NamedTuple

from msgspec import Meta

from berth.schemas.constraints import Term, Toleration
from berth.schemas.message import Message, Part
from berth.schemas.pod_constraints import PodConstraints
from berth.schemas.subjects import PLAIN_CHARACTERS_MAX
from berth.schemas.units import CpuMilli, MemoryMib, Sequence, UnixMs

Name = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")]


class Bound(NamedTuple):
    """Most of something that one request may have."""

    name: str
    most: int
    what: str
    """What is counted, in the plural, and of what: ``tasks of a job``."""

    @property
    def expected(self) -> str:
        """The bound in words."""
        return f"at most {self.most} {self.what}"


TASKS: Final = Bound("tasks", 4_096, "tasks of a job")
SHAPES: Final = Bound("shapes", 1_024, "kinds of pods of a job, which differ in what they ask for")
BYTES: Final = Bound("bytes", 2_000_000, "bytes of a job")
LABELS: Final = Bound("labels", 256, "labels of a job, and of the pods of a task")
ANNOTATIONS: Final = Bound("annotations", 256, "annotations of a job")
TEXT: Final = Bound("text", 262_144, "characters in all labels of a job, and in all its annotations")
SELECTOR: Final = Bound("selector", 64, "labels in a selector of nodes, and in the preferred neighbours of a job")
TOLERATIONS: Final = Bound("tolerations", 64, "tolerations of a pod")
TERMS: Final = Bound("terms", 32, "terms of each kind of affinity and spread of a pod")
EXPRESSIONS: Final = Bound("expressions", 64, "conditions of a term")
VALUES: Final = Bound("values", 4_096, "values in all conditions of a kind of affinity of a pod")
PORTS: Final = Bound("ports", 1_024, "host ports of a pod")
RESOURCES: Final = Bound("resources", 64, "resources of a pod beside chips, cpu and memory")
VOLUMES: Final = Bound("volumes", 256, "volumes of a pod")
CONTAINERS: Final = Bound("containers", 256, "containers of a pod")
KEY: Final = Bound("key", 317, "characters of a name, and of the key of a label or an annotation")
UID: Final = Bound("uid", PLAIN_CHARACTERS_MAX, "characters of the uid of a job")
BOUNDS: Final = (
    TASKS, SHAPES, BYTES, LABELS, ANNOTATIONS, TEXT, SELECTOR, TOLERATIONS, TERMS, EXPRESSIONS, VALUES, PORTS, RESOURCES,
    VOLUMES, CONTAINERS, KEY, UID,
)  # fmt: skip
"""All bounds of one request. Every entrance reads them: manifests, programs, pods and stored requests."""


class Task(Part, frozen=True):
    """Equal pods of a job. Ranks are numbered through the tasks in order."""

    name: str
    replicas: Annotated[int, Meta(ge=0)]
    chips: Annotated[int, Meta(ge=0)]
    """Chips per pod. The dispatcher checks whether the product allows the number."""
    cpu_milli: CpuMilli = 0
    memory_mib: MemoryMib = 0
    node_selector: dict[str, str] = {}
    affinity: list[Term] = []
    """Required node affinity: one of the terms must hold; empty: no condition."""
    tolerations: list[Toleration] = []
    labels: dict[str, str] = {}
    """Labels that all of its pods have."""
    constraints: PodConstraints | None = None
    """Pod affinity, topology spread, host ports, other resources and claims; None: none of them."""


PREEMPTABLE: Final = "volcano.sh/preemptable"
"""Annotation or label: whether a job, or a pod, may be ended for another job."""
COOLDOWN_TIME: Final = "volcano.sh/cooldown-time"
"""Label or annotation: for how long after its start a job may not be ended for another one."""
PREEMPT_NOTICE: Final = "berth/preempt-notice-s"
"""Annotation: seconds between the notice that a job is to end and the deletion of its pods."""
CHECKPOINT_AT: Final = "berth/checkpoint-at"
"""Annotation of a PodGroup, or of the pod of rank 0: when the job last saved its work, as RFC 3339."""
NOTICE_S_MAX: Final = 600
"""Longest notice."""
PREEMPTION_KEYS: Final = frozenset({PREEMPTABLE, COOLDOWN_TIME, PREEMPT_NOTICE, CHECKPOINT_AT})
"""Labels and annotations that may change while a job waits or runs."""


class Preemption(Part, frozen=True):
    """What the objects of a job say of preemption and reclaim, beside its priority and its queue."""

    never: bool = False
    """It ends no other job: its PriorityClass, or its pods, have ``preemptionPolicy: Never``."""
    preemptable: bool = True
    """It may be ended for another job: nothing says otherwise. A value that is not readable says so."""
    is_declared: bool = False
    """It says itself that it is preemptable."""
    critical: bool = False
    """It is never ended for another job, and others end for it in every queue: it has a class of the system, or is in
    the namespace ``kube-system``."""
    cooldown_s: Annotated[int, Meta(ge=0)] = 0
    """It is not ended for another job so soon after its start; 0: no such time."""
    notice_s: Annotated[int, Meta(ge=0, le=NOTICE_S_MAX)] = 0
    """Seconds from the notice that it is to end to the deletion of its pods; 0: no notice."""
    ignored: Annotated[list[Annotated[str, Meta(max_length=1_000)]], Meta(max_length=8)] = []
    """What of this has no effect, or another one than it says: sentences without a full stop, one for each key."""


FROM_PODS: Final = "pods"
"""Origin of requests that the inventory makes from pods."""


class JobRequest(Message, frozen=True):
    """Request for a gang: pods that start together or not at all."""

    KIND: ClassVar[str] = "intake.request"

    namespace: Name
    name: Name
    uid: str
    """Identity beyond the name. If empty, the dispatcher derives one from the INTAKE sequence of the request."""
    resource: str
    """Resource name of the chips, such as ``huawei.com/Ascend910``; empty for a job without chips."""
    tasks: list[Task]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    """Selector of the whole job; the selector of each task is added."""
    queue: str = "default"
    priority: int = 0
    min_available: int = 0
    """Pods that must start together; 0 means all of them."""
    run_ms: Annotated[int, Meta(ge=0)] = 0
    """Declared run time; 0: unknown. Simulated clusters end the pods after it."""
    origin: str = "berth"
    """Form of the original manifest: berth, volcano-job, ascend-job, batch-job, pods."""
    created_at_ms: UnixMs = 0
    near: dict[str, str] = {}
    """Labels of pods near which its pods prefer to run: the first term of their preferred pod affinity."""
    submitted_by: str = ""
    """Identity of the program that submitted it through the JSON API; empty otherwise."""
    since_seq: Sequence = 0
    """INTAKE sequence of an earlier request whose place in the queue this one takes; 0: its own. Only with the origin
    ``pods``."""
    is_fragile: bool = False
    """Ranks that a running gang has lost and without which it has too few pods: they come before other work of their
    priority. Only with the origin ``pods``."""
    is_unowned: bool = False
    """A pod of it has no controller that makes it anew when it is deleted: a drain leaves it where it is. Only with the
    origin ``pods``."""
    avoided: list[str] = []
    """Nodes that have rejected pods of the same owner, sorted: used only if it is not placed otherwise."""
    preemption: Preemption | None = None
    """What it says of preemption; None: nothing, so all defaults."""


def rank_of(priority: int, *, is_fragile: bool) -> int:
    """Priority as the first part of a sort key; among equal ones, requests that are fragile come first."""
    return -2 * priority - is_fragile


class JobCancel(Message, frozen=True):
    """Request to cancel a job, whether it runs or waits."""

    KIND: ClassVar[str] = "intake.cancel"

    namespace: Name
    name: Name
    uid: str = ""
    """Only the job with this uid; empty: the job that has the name."""
    reason: str = ""
    created_at_ms: UnixMs = 0
    cancelled_by: str = ""
    """Identity of the program that cancels it through the JSON API; empty otherwise."""
    inferred: bool = False
    """Nobody asked for it: it follows from what is seen of the job's pods. Pods that have a node are not deleted."""


PRIORITY_MAX: Final = 2_000_001_000
"""Largest priority of a job: that of the class ``system-node-critical``. The least one is as far below 0."""
Priority = Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]


class JobSteer(Message, frozen=True):
    """Request to hold a job that waits, to release it, or to change its priority."""

    KIND: ClassVar[str] = "intake.steer"

    namespace: Name
    name: Name
    uid: str
    """Only the job with this uid."""
    held: bool | None = None
    """Whether it is held from now on; None: as before."""
    priority: Priority | None = None
    """Its priority from now on; None: as before."""
    by: str = ""
    """Who asks, for people."""
    reason: str = ""
    created_at_ms: UnixMs = 0
    program: str = ""
    """Identity of the program that asks through the JSON API; empty for an operator."""


class Hold(Part, frozen=True):
    """A job is not started until it is released."""

    by: str
    """Who holds it."""
    reason: str
    at_ms: UnixMs
    program: str = ""
    """Identity of the program that holds it; empty for an operator."""

    @property
    def words(self) -> str:
        """Who holds the job and why, as a sentence without a full stop."""
        return f"held by {self.by}: {self.reason}" if self.reason else f"held by {self.by}"
