"""What the gang resolver wants done, in this order: each is done, and tried again, by whoever asked for it."""

from dataclasses import dataclass
from typing import TypeAlias

from berth.formats.kubernetes.owners import OwnerKey
from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobCancel, JobRequest


@dataclass(frozen=True, slots=True)
class PublishMembers:
    """Publish which pods stand for a request, or why there is none."""

    members: MembersSeen


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """Publish a job request; doing it twice is harmless."""

    request: JobRequest


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Publish that a request is taken back."""

    cancel: JobCancel


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read an object and give its facts to ``set_owner``."""

    owner: OwnerKey


@dataclass(frozen=True, slots=True)
class SetGroup:
    """Patch a PodGroup as a merge patch of the object itself; it names the version that it was computed from."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    patch: dict[str, object]


Effect: TypeAlias = PublishMembers | SubmitRequest | CancelRequest | ReadOwner | SetGroup
