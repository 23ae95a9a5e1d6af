"""A handler that keeps what a reflection shows it."""

from typing import Generic, Protocol, TypeVar

from berth.formats.kubernetes.lean import Meta
from berth.runtime.kube.port import Change


class Named(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> Meta: ...


N = TypeVar("N", bound=Named)


class Mirror(Generic[N]):
    """All objects by name, and what happened, oldest first.

    Attributes:
        objects: What there is now.
        log: ``(kind of change, name)``; a list is ``("LIST", names in order, with blanks between)``.
    """

    def __init__(self) -> None:
        self.objects: dict[str, N] = {}
        self.log: list[tuple[str, str]] = []

    def replace(self, objects: list[N]) -> None:
        self.objects = {item.metadata.name: item for item in objects}
        self.log.append(("LIST", " ".join(sorted(self.objects))))

    def change(self, changes: list[tuple[Change, N]]) -> None:
        for change, item in changes:
            self.log.append((change, item.metadata.name))
            if change == "DELETED":
                self.objects.pop(item.metadata.name, None)
            else:
                self.objects[item.metadata.name] = item

    @property
    def names(self) -> list[str]:
        return sorted(self.objects)
