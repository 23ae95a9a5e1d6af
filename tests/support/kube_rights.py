"""The rights that ``k8s/`` gives to a service, given to an ordinary user of a test's server."""

from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.kube_api import KubeApi, RefusedError
from tests.support.kustomize import Tree, render
from tests.support.waiting import until_true

RBAC: Final = "rbac.authorization.k8s.io"
SERVICES: Final = ("inventory", "health", "binder", "summary", "nodesim")
"""Services that speak with the API server; each is a user of the server of ``tests/kube``."""
_K8S: Final = Path(__file__).parents[2] / "k8s"
_GRANTED_S: Final = 10.0


class Right(NamedTuple):
    """Something that may be done; an empty namespace stands for all of them, or for what is in none."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def review(self, user: str, groups: tuple[str, ...] = ()) -> Tree:
        """A question to the server whether a user may do it."""
        resource, _, part = self.resource.partition("/")
        asked = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": part,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": list(groups), "resourceAttributes": asked},
        }


def bindings_of(objects: list[Tree], service: str) -> list[Tree]:
    """RoleBindings and ClusterRoleBindings of a service's account."""
    return [
        one
        for one in objects
        if one["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        and service in {subject["name"] for subject in one["subjects"]}
    ]


def role_of(objects: list[Tree], binding: Tree) -> Tree:
    """The role that a binding gives."""
    reference = binding["roleRef"]
    namespace = binding["metadata"].get("namespace", "") if reference["kind"] == "Role" else ""
    (found,) = [
        one
        for one in objects
        if (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", ""))
        == (reference["kind"], reference["name"], namespace)
    ]
    return found


def rights_of(objects: list[Tree], service: str) -> list[Right]:
    """Everything that the account of a service may do."""
    return [right for binding in bindings_of(objects, service) for right in rights_in(role_of(objects, binding))]


def rights_in(role: Tree) -> list[Right]:
    """Everything that a role allows."""
    namespace = role["metadata"].get("namespace", "")
    return [
        Right(verb, group, resource, namespace, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    ]


def path_of(one: Tree, *, named: bool = True) -> str:
    """Path of a role or a binding, or of the collection that it belongs to."""
    namespace = one["metadata"].get("namespace")
    within = f"namespaces/{namespace}/" if namespace else ""
    collection = f"/apis/{RBAC}/v1/{within}{one['kind'].lower()}s"
    return f"{collection}/{one['metadata']['name']}" if named else collection


FAULT_OBJECTS: Final = _K8S / "fault-objects"
"""Rights that summary needs for the ConfigMaps about faults."""


async def grant(api: KubeApi, user: str, service: str, folder: Path = _K8S / "overlays" / "dev") -> None:
    """Give a user the rights of a service, those of the overlay for trials included, and wait until they hold.

    The namespaces in which roles are (``kube-system``, ``mindx-dl``, ``volcano-system``) must be there. What is made is
    swept away after the test.

    Args:
        api: As an admin.
        user: Of the server; a name given to :class:`~berth.lab.servers.kube_server.KubeServer`.
        service: One of :data:`SERVICES`.
        folder: Kustomization with the rights.
    """
    objects = render(folder)
    bindings = bindings_of(objects, service)
    assert bindings, f"no rights of {service} in k8s; known are {', '.join(SERVICES)}"
    waiting: list[Right] = []
    for binding in bindings:
        role = role_of(objects, binding)
        await _make(api, role)
        name = f"{binding['metadata']['name']}-of-{user}"
        subject = {"apiGroup": RBAC, "kind": "User", "name": user}
        await _make(api, {**binding, "metadata": {**binding["metadata"], "name": name}, "subjects": [subject]})
        waiting.append(rights_in(role)[0])

    async def all_hold() -> bool:
        return all([await may(api, user, right) for right in waiting])

    await until_true(all_hold, deadline_s=_GRANTED_S, what=f"the rights of {service} hold for {user}")


async def let_tell_agents(api: KubeApi, namespace: str, *users: str) -> None:
    """Let users write ``reset-config-<job>`` of the jobs of a namespace, as the guide says; wait until they may."""
    (role,) = [
        one
        for one in render(FAULT_OBJECTS)
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "berth-summary-resets")
    ]
    await _make(api, role)
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": role["metadata"]["name"], "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user} for user in users],
    }
    await _make(api, binding)
    right = Right("patch", "", "configmaps", namespace, "reset-config-llm")

    async def all_hold() -> bool:
        return all([await may(api, user, right) for user in users])

    await until_true(all_hold, deadline_s=_GRANTED_S, what=f"the role of namespace {namespace} holds")


async def may(api: KubeApi, user: str, right: Right, groups: tuple[str, ...] = ()) -> bool:
    """Whether the server lets a user do something; asked as an admin."""
    answer: dict[str, Any] = await api.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews", right.review(user, groups)
    )
    return bool(answer["status"]["allowed"])


async def _make(api: KubeApi, one: Tree) -> None:
    try:
        await api.post(path_of(one, named=False), one)
    except RefusedError as error:
        if error.body.get("reason") != "AlreadyExists":
            raise
