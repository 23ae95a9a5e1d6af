"""An API server in memory, behind the port, for tests of those who use one.

It knows paths, versions, selectors, patches, watches, pods' bindings, evictions and graceful ends, as
``tests/kube/test_fake_is_like_real.py`` compares. It does not know schemas, rights, namespaces that are missing,
finalizers and controllers.
"""

import asyncio
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from berth.runtime.clock import Clock
from berth.runtime.kube.port import Body, Handler, PatchKind, RefusedError, refuse_other_paths
from tests.support.clock import ManualClock
from tests.support.fake_reflection import FakeReflection, decoded
from tests.support.kube_rules import Place, Tree, merged, no_binding, place_of, refuse, selector

T = TypeVar("T")

_STATUS_APART = {"jobs", "namespaces", "nodes", "pods"}
_GRACE_S = 30


class Call(NamedTuple):
    """A call that was made."""

    method: str
    path: str
    body: Tree


class _Fault(NamedTuple):
    error: Exception
    method: str
    part: str
    landed: bool


class FakeKube:
    """The server and a connection to it.

    Args:
        clock: Time of the objects.
        unserved: Plurals of kinds that it does not have, such as ``podgroups``.

    Attributes:
        calls: All calls so far, also those that failed.
        watching: Clear it to keep changes from reflections for a while; set it to let them through.
    """

    def __init__(self, *, clock: Clock | None = None, unserved: Collection[str] = ()) -> None:
        self.calls: list[Call] = []
        self.watching = asyncio.Event()
        self.watching.set()
        self._clock = clock or ManualClock()
        self._unserved = set(unserved)
        self._version = 0
        self._stores: dict[tuple[str, str], dict[tuple[str, str], Tree]] = {}
        self._faults: list[_Fault] = []
        self._reflections: list[FakeReflection[Any]] = []

    # What tests do behind the back of those who are tested.

    def put(self, path: str, found: Body) -> Tree:
        """Make or replace an object as it is, status included; ``path`` is that of its collection or its own."""
        tree = _tree(found)
        meta = tree["metadata"]
        place = place_of(path)
        place = place._replace(name=meta["name"], namespace=place.namespace or meta.get("namespace", ""), sub="")
        old = self._store(place).get(place.key)
        return self._keep(place, {**tree, "metadata": {**_identity(old), **meta}})

    def object(self, path: str) -> Tree:
        """An object as it is now; ``KeyError`` without one."""
        place = place_of(path)
        return self._store(place)[place.key]

    def objects(self, path: str, **params: str) -> list[Tree]:
        """Objects of a collection, by namespace and name; ``labelSelector`` and ``fieldSelector`` as keywords."""
        return self._select(place_of(path), params)

    def confirm(self, path: str) -> None:
        """Take an object away for good, as the kubelet does when the containers of a pod have ended."""
        self._drop(place_of(path))

    def fail(self, error: Exception, *, method: str = "", part: str = "", times: int = 1, landed: bool = False) -> None:
        """Let the next calls with this method and ``part`` in the path raise; after their effect if ``landed``."""
        self._faults += [_Fault(error, method, part, landed)] * times

    def forgive(self) -> None:
        """Let no further call raise."""
        self._faults.clear()

    def relist(self) -> None:
        """Let all reflections list again, as after an answer 410."""
        for reflection in self._reflections:
            reflection.relist()

    # The port.

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        place = await self._begin("GET", path, {})
        if place.name:
            answer: object = self._found(place)
        else:
            items, more = _page(self._select(place, params or {}), params or {})
            answer = {"metadata": {"resourceVersion": str(self._version), "continue": more}, "items": items}
        self._landed("GET", path)
        return decoded(answer, kind)

    async def create(self, path: str, body: Body) -> bytes:
        tree = _tree(body)
        place = await self._begin("POST", path, tree)
        if place.sub == "binding":
            answer = self._bind(place, tree)
        elif place.sub == "eviction":
            self._delete(place, tree.get("deleteOptions") or {})
            answer = {"kind": "Status", "status": "Success", "code": 201}
        else:
            answer = self._create(place, tree)
        self._landed("POST", path)
        return msgspec.json.encode(answer)

    async def update(self, path: str, body: Body) -> bytes:
        tree = _tree(body)
        place = await self._begin("PUT", path, tree)
        answer = self._change(place, self._found(place), tree)
        self._landed("PUT", path)
        return msgspec.json.encode(answer)

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        tree = _tree(body)
        place = await self._begin("PATCH", path, tree)
        if how == "json":
            raise ValueError("this server takes no JSON patches")
        if how == "apply" and not field_manager:
            raise ValueError(f"apply to {path} needs a field manager")
        if how == "strategic" and place.is_custom:
            refuse(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        if how == "apply" and place.key not in self._store(place):
            answer = self._create(place._replace(name="", sub=""), tree)
        else:
            old = self._found(place)
            answer = self._change(place, old, merged(old, tree, by_key=how in {"strategic", "apply"}), patch=tree)
        self._landed("PATCH", path)
        return msgspec.json.encode(answer)

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None, propagation: str = "") -> None:
        options: Tree = {"preconditions": {"uid": uid}} if uid else {}
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        options |= {"propagationPolicy": propagation} if propagation else {}
        try:
            place = await self._begin("DELETE", path, options)
        except RefusedError as error:
            if not error.is_absent:
                raise
            return
        if place.key in self._store(place):
            self._delete(place, options)
        self._landed("DELETE", path)

    def reflect(
        self,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        params: Mapping[str, str] | None = None,
        is_optional: bool = False,
    ) -> FakeReflection[T]:
        place = place_of(path)
        test = selector(params or {}, place.plural)
        return FakeReflection(
            place,
            kind,
            handler,
            test,
            listed=lambda: self.listed(path, params or {}, may_refuse=is_optional),
            group=self._reflections,
            gate=self.watching,
        )

    def listed(self, path: str, params: Mapping[str, str], *, may_refuse: bool) -> list[Tree]:
        """What a reflection lists.

        Args:
            path: Collection.
            params: Selectors.
            may_refuse: It is answered like a call: it fails if a test wants so, and if the kind is not served.
        """
        place = place_of(path)
        if may_refuse:
            self.calls.append(Call("GET", path, {}))
            self._raise("GET", path, landed=False)
            if place.plural in self._unserved:
                refuse(404, "", "404 page not found")
        return self._select(place, params)

    async def serves(self, group_version: str, plural: str) -> bool:
        await self._begin(
            "GET",
            f"/apis/{group_version}/{plural}" if "/" in group_version else f"/api/{group_version}/{plural}",
            {},
            is_question=True,
        )
        return plural not in self._unserved

    async def version(self) -> str:
        return "v1.36.3"

    async def close(self) -> None:
        pass

    # What the server does.

    async def _begin(self, method: str, path: str, body: Tree, *, is_question: bool = False) -> Place:
        """Note a call, let others run, fail if a test wants so, and read the path."""
        refuse_other_paths(path)
        self.calls.append(Call(method, path, body))
        await asyncio.sleep(0)
        self._raise(method, path, landed=False)
        place = place_of(path)
        if place.plural in self._unserved and not is_question:
            refuse(404, "", "404 page not found")
        return place

    def _landed(self, method: str, path: str) -> None:
        self._raise(method, path, landed=True)

    def _raise(self, method: str, path: str, *, landed: bool) -> None:
        for index, fault in enumerate(self._faults):
            if fault.landed == landed and fault.method in {"", method} and fault.part in path:
                del self._faults[index]
                raise fault.error

    def _store(self, place: Place) -> dict[tuple[str, str], Tree]:
        return self._stores.setdefault((place.root, place.plural), {})

    def _found(self, place: Place) -> Tree:
        try:
            return self._store(place)[place.key]
        except KeyError:
            refuse(404, "NotFound", f'{place.plural} "{place.name}" not found')

    def _select(self, place: Place, params: Mapping[str, str]) -> list[Tree]:
        test = selector(params, place.plural)
        found = self._store(place)
        return [found[key] for key in sorted(found) if place.namespace in {"", key[0]} and test(found[key])]

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _keep(self, place: Place, new: Tree) -> Tree:
        """Store an object under the next version, and tell."""
        self._version += 1
        named = {"name": place.name, **({"namespace": place.namespace} if place.namespace else {})}
        fresh = {"uid": str(uuid.UUID(int=self._version)), "creationTimestamp": self._now()}
        new = {**new, "metadata": {**fresh, **new["metadata"], **named, "resourceVersion": str(self._version)}}
        old = self._store(place).get(place.key)
        self._store(place)[place.key] = new
        self._tell(place, old, new)
        return new

    def _drop(self, place: Place) -> None:
        self._version += 1
        old = self._store(place).pop(place.key)
        self._tell(place, {**old, "metadata": {**old["metadata"], "resourceVersion": str(self._version)}}, None)

    def _tell(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        for reflection in self._reflections:
            reflection.see(place, old, new)

    def _create(self, place: Place, tree: Tree) -> Tree:
        meta = tree.get("metadata") or {}
        name = meta.get("name") or (f"{meta['generateName']}{self._version + 1:05}" if meta.get("generateName") else "")
        if not name:
            refuse(422, "Invalid", "metadata.name: Required value: name or generateName is required")
        if meta.get("namespace", place.namespace) != place.namespace:
            refuse(400, "BadRequest", "the namespace of the object does not match the request")
        place = place._replace(name=name)
        if place.key in self._store(place):
            refuse(409, "AlreadyExists", f'{place.plural} "{name}" already exists')
        meta = {key: value for key, value in meta.items() if key not in {"uid", "resourceVersion", "creationTimestamp"}}
        new = {**tree, "metadata": meta}
        if place.plural == "pods":
            new["status"] = {"phase": "Pending"}
        return self._keep(place, new)

    def _change(self, place: Place, old: Tree, new: Tree, *, patch: Tree | None = None) -> Tree:
        """Replace an object by ``new``, or by what a patch made of it."""
        said = (new if patch is None else patch).get("metadata") or {}
        named = f'{place.plural} "{place.name}"'
        if said.get("resourceVersion", "") not in {"", old["metadata"]["resourceVersion"]}:
            refuse(409, "Conflict", f"Operation cannot be fulfilled on {named}: the object has been modified")
        if said.get("uid", "") not in {"", old["metadata"]["uid"]}:
            if patch is not None:
                refuse(422, "Invalid", f"{named} is invalid: metadata.uid: Invalid value: field is immutable")
            refuse(
                409, "Conflict", f"Operation cannot be fulfilled on {named}: Precondition failed: UID in precondition"
            )
        if place.sub == "status":
            new = {**old, "status": new.get("status", {})}
        elif place.plural in _STATUS_APART:
            new = {**new, **({"status": old["status"]} if "status" in old else {})}
        new = {
            **new,
            "metadata": {
                **(new.get("metadata") or {}),
                **_identity(old),
                "resourceVersion": old["metadata"]["resourceVersion"],
            },
        }
        return old if new == old else self._keep(place, new)

    def _delete(self, place: Place, options: Tree) -> None:
        """End an object; a pod on a node that is not done has a time of grace."""
        old = self._found(place)
        uid = (options.get("preconditions") or {}).get("uid", "")
        if uid not in {"", old["metadata"]["uid"]}:
            refuse(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {place.plural} "{place.name}": the UID in the precondition ({uid}) does not match',
            )
        grace_s = options.get("gracePeriodSeconds", _GRACE_S)
        is_over = (old.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        if place.plural != "pods" or not grace_s or is_over or not old["spec"].get("nodeName"):
            self._drop(place)
        elif "deletionTimestamp" not in old["metadata"]:
            marks = {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": grace_s}
            self._keep(place, {**old, "metadata": {**old["metadata"], **marks}})

    def _bind(self, place: Place, binding: Tree) -> Tree:
        pod = self._found(place)
        meta = binding["metadata"]
        if meta.get("name", place.name) != place.name:
            refuse(400, "BadRequest", "the name of the object does not match the name on the URL")
        if reason := no_binding(pod, meta):
            refuse(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{place.name}": {reason}')
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._now()}
        was = [item for item in (pod.get("status") or {}).get("conditions") or () if item["type"] != "PodScheduled"]
        annotations = {**(pod["metadata"].get("annotations") or {}), **(meta.get("annotations") or {})}
        self._keep(
            place,
            {
                **pod,
                "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})},
                "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
                "status": {**(pod.get("status") or {}), "conditions": [*was, scheduled]},
            },
        )
        return {"kind": "Status", "status": "Success", "code": 201}


def _tree(body: Body) -> Tree:
    """A body as a tree of its own."""
    tree: Tree = msgspec.json.decode(body if isinstance(body, bytes) else msgspec.json.encode(body))
    return tree


def _page(items: list[Tree], params: Mapping[str, str]) -> tuple[list[Tree], str]:
    """A page of a list, and the token of the next; empty after the last. It is a position, not a version."""
    begin = int(params.get("continue") or 0)
    end = begin + int(params.get("limit") or len(items) or 1)
    return items[begin:end], str(end) if end < len(items) else ""


def _identity(old: Tree | None) -> Tree:
    """What of an object's metadata never changes."""
    return {key: old["metadata"][key] for key in ("uid", "creationTimestamp")} if old else {}
