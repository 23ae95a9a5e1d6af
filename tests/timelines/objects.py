"""Objects of a timeline: as they were recorded, and as the cell's API server has them."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tests.sim.kube import SimKube, finished
from tests.support.kube_rules import merged
from tests.timelines.recording import Line, Made, Tree

_UID: Final = re.compile(r"uid-\d{3,}")
_OF_SERVER: Final = ("uid", "creationTimestamp", "resourceVersion")
_STATUS_WITH_SPEC: Final = frozenset({"PodGroup"})
"""Kinds without a resource of their own for the status: it is created with the object."""
_ROOTS: Final = {"Pod": "/api/v1", "PodGroup": "/apis/scheduling.volcano.sh/v1beta1"}
UNPLAYED: Final = frozenset({"Event", "ConfigMap", "Service", "ControllerRevision"})
"""Kinds that no scheduler reads."""
_DELETING: Final = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds", "generation"})


class Recorded:
    """Objects as the recording has them at a line.

    Attributes:
        now: Objects by the recording's uid.
    """

    def __init__(self) -> None:
        self.now: dict[str, Tree] = {}

    def follow(self, line: Line) -> None:
        """Take a change."""
        if line.verb == "added":
            self.now[line.uid] = line.object | {"kind": line.kind}
        elif line.verb == "deleted":
            self.now.pop(line.uid, None)
        elif line.uid in self.now:
            self.now[line.uid] = merged(self.now[line.uid], line.patch)

    def of_kind(self, kind: str) -> list[Tree]:
        """Objects of a kind that are there."""
        return [found for found in self.now.values() if found["kind"] == kind]


class Played:
    """The same objects on the cell's API server.

    Args:
        kube: The server.

    Attributes:
        asked: Pods (uid of the server) that the recording deletes.
    """

    def __init__(self, kube: SimKube) -> None:
        self._kube = kube
        self._uids: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self.asked: set[str] = set()

    def here(self, text: str) -> str:
        """A text of the recording with the server's uids."""
        return _UID.sub(lambda match: self._uids.get(match[0], match[0]), text)

    def path(self, uid: str) -> str:
        """Path of an object by the recording's uid."""
        return self._paths[uid]

    def find(self, uid: str) -> Tree | None:
        """An object by the recording's uid, unless it is gone, or another one has its name."""
        try:
            found = self._kube.object(self._paths[uid])
        except KeyError:  # also of an object that was never there
            return None
        return found if found["metadata"]["uid"] == self._uids[uid] else None

    def adopt(self, line: Line) -> None:
        """Take the pod or PodGroup that has the name of a line's as that one, unless it is known already."""
        if line.uid in self._uids or line.kind not in _ROOTS:
            return
        namespace, _, name = self.here(line.name).partition("/")
        path = f"{_ROOTS[line.kind]}/namespaces/{namespace}/{_plural(line.kind)}/{name}"
        try:
            self._uids[line.uid] = self._kube.object(path)["metadata"]["uid"]
        except KeyError:
            return
        self._paths[line.uid] = path

    def start(self, made: Made) -> None:
        """Make an object that was there before the recording; of a queue that Berth has made it takes the place."""
        collection, tree = self._placed(made.object)
        self._note(made.uid, collection, self._kube.put(collection, tree))

    def add(self, line: Line) -> None:
        """Make the object of a line."""
        keeps_status = line.kind in _STATUS_WITH_SPEC
        self._create(line.uid, {key: value for key, value in line.object.items() if key != "status" or keeps_status})

    def change(self, line: Line) -> None:
        """Change an object as a line does; one that is gone stays so."""
        found = self.find(line.uid)
        if found is None:
            return
        if line.kind == "Pod" and line.via == "delete":
            self.asked.add(found["metadata"]["uid"])
            finished(self._kube.delete(self.path(line.uid), grace_s=_grace_s(found)))
            return
        self._kube.put(self.path(line.uid), merged(found, self._tree(line.patch)))

    def remove(self, line: Line) -> None:
        """Delete an object, but a pod whose containers still end."""
        found = self.find(line.uid)
        if found is None:
            return
        if line.kind == "Pod":
            self.asked.add(found["metadata"]["uid"])
            finished(self._kube.delete(self.path(line.uid), grace_s=_grace_s(found)))
        else:
            if found["metadata"].get("finalizers"):
                self._kube.release(self.path(line.uid))
            if self.find(line.uid) is not None:
                self._kube.confirm(self.path(line.uid))

    def _create(self, uid: str, body: Tree) -> None:
        collection, tree = self._placed(body)
        self._note(uid, collection, msgspec.json.decode(finished(self._kube.create(collection, tree))))

    def _placed(self, body: Tree) -> tuple[str, Tree]:
        """Path of the collection of an object, and the object without what the server writes."""
        meta = {key: value for key, value in body["metadata"].items() if key not in _OF_SERVER}
        tree = self._tree({**body, "metadata": meta})
        version = tree["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        namespace = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        return f"{root}{namespace}/{_plural(tree['kind'])}", tree

    def _note(self, uid: str, collection: str, made: Tree) -> None:
        self._uids[uid] = made["metadata"]["uid"]
        self._paths[uid] = f"{collection}/{made['metadata']['name']}"

    def _tree(self, tree: Mapping[str, object]) -> Tree:
        found: Tree = msgspec.json.decode(self.here(msgspec.json.encode(tree).decode()))
        return found


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"


def _grace_s(pod: Tree) -> int:
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))
