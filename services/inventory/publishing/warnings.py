"""Warnings about accepted requests of which some field is unknown: one per object. Pure."""

from collections.abc import Callable

from berth.core.chips.form_selection import FormChoice
from berth.core.requests.job_validation import requested_form
from berth.formats.kubernetes.events import Involved
from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobRequest

_PODGROUPS = "scheduling.volcano.sh/v1beta1"


class RequestWarnings:
    """Sentences by object: the PodGroup, otherwise the controller, otherwise the first pod of the requests."""

    def __init__(self) -> None:
        self.sentences: dict[str, str] = {}
        self._about: dict[str, Involved] = {}
        self._jobs: dict[str, dict[tuple[str, str], None]] = {}
        """Requests to which a sentence applies."""
        self._key_of: dict[tuple[str, str], str] = {}

    def judge(self, request: JobRequest, members: MembersSeen | None, group_uid: Callable[[str, str], str]) -> None:
        """Take a new request.

        Args:
            request: The request.
            members: Its pods, as published.
            group_uid: Returns the uid of a PodGroup by namespace and name; empty when it does not exist.
        """
        job = (request.namespace, request.name)
        self.drop(*job)
        if members is None or not any(task.chips for task in request.tasks):
            return
        chosen = requested_form(request)
        if not isinstance(chosen, FormChoice) or not chosen.is_guess:
            return
        about = _involved(members, group_uid(members.namespace, members.podgroup))
        key = f"{about.kind} {about.namespace}/{about.name} {about.uid}"
        self._about[key] = about
        self._key_of[job] = key
        self._jobs.setdefault(key, {})[job] = None
        self.sentences[key] = f"product form {chosen.form.name} is assumed, because {chosen.because}"

    def drop(self, namespace: str, name: str) -> None:
        """A request has ended."""
        key = self._key_of.pop((namespace, name), None)
        if key is None:
            return
        jobs = self._jobs[key]
        del jobs[namespace, name]
        if not jobs:
            del self._jobs[key], self._about[key], self.sentences[key]

    def involved(self, key: str) -> Involved | None:
        """Object of a sentence."""
        return self._about.get(key)


def _involved(members: MembersSeen, group_uid: str) -> Involved:
    if members.podgroup and group_uid:
        return Involved(
            api_version=_PODGROUPS,
            kind="PodGroup",
            namespace=members.namespace,
            name=members.podgroup,
            uid=group_uid,
        )
    owner = members.owner
    if owner.name and owner.uid:
        return Involved(kind=owner.kind, namespace=members.namespace, name=owner.name, uid=owner.uid)
    pod, uid = members.pods[0], members.pod_uids[0]
    return Involved(api_version="v1", kind="Pod", namespace=members.namespace, name=pod, uid=uid)
