"""Effects of the gang resolver. The caller performs them in order and retries each one that fails."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.intake import JobCancel, JobRequest


@dataclass(frozen=True, slots=True)
class PublishMembers:
    """Publish the pods that take the ranks of a request, or the reason why there is no request."""

    members: MembersSeen


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Publish a job request. A second publication has no effect.

    Attributes:
        request: The request.
        warnings: What is to be said of it, as sentences by reason of the Event; empty ones count as none.
        is_new: None of its uid was published before, by an earlier process neither.
    """

    request: JobRequest
    warnings: Mapping[str, str]
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class PublishCancel:
    """Publish the cancellation of a request."""

    cancel: JobCancel


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read the owner of a gang and pass its facts to ``Gangs.set_owner``."""

    owner: OwnerKey


@dataclass(frozen=True, slots=True)
class PatchPodGroup:
    """Patch a PodGroup with a merge patch that names the resource version from which it was computed."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    patch: dict[str, object]


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """What is said of a PodGroup of Kubernetes."""

    status: str
    """``True`` or ``False``."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PatchNativeGroup:
    """Write a condition into the status of a PodGroup of Kubernetes, unless it is there."""

    namespace: str
    name: str
    uid: str
    condition: GroupCondition
    at_ms: int


@dataclass(frozen=True, slots=True)
class PublishReplacements:
    """Publish the ranks of a request whose new pods wait for a place."""

    replacements: ReplacementsSeen


Effect: TypeAlias = (
    PublishMembers | PublishRequest | PublishCancel | ReadOwner | PatchPodGroup | PatchNativeGroup | PublishReplacements
)
