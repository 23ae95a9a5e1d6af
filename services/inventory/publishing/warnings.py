"""Warnings about accepted requests, by reason and one per object. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from berth.core.chips.form_selection import FormChoice
from berth.core.requests.fault_rules import rules_of
from berth.core.requests.job_validation import requested_form
from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import PODGROUP_VERSION
from berth.schemas.facts import MembersSeen
from berth.schemas.intake import JobRequest

FORM_ASSUMED: Final = "FormAssumed"
"""Reason of the Event about a job of which some field is unknown."""
FAULT_LABEL_IGNORED: Final = "FaultLabelIgnored"
"""Reason of the Event about a job with labels for faults that mean nothing or contradict one another."""
PREEMPTION_IGNORED: Final = "PreemptionIgnored"
"""Reason of the Event about a job of which something that it says of preemption has no effect."""
_Job = tuple[str, str]
"""Namespace and name of a request."""


class RequestWarnings:
    """Sentences by object: the PodGroup, otherwise the controller, otherwise the first pod of the requests."""

    def __init__(self) -> None:
        self._sentences: dict[str, dict[str, str]] = {}
        """Sentences by key of the object, by reason."""
        self._about: dict[str, Involved] = {}
        self._jobs: dict[str, dict[_Job, tuple[str, ...]]] = {}
        """Requests of an object, and the reasons of their warnings."""
        self._key_of: dict[_Job, str] = {}

    def judge(
        self,
        request: JobRequest,
        members: MembersSeen | None,
        group_uid: Callable[[str, str], str],
        others: Mapping[str, str],
    ) -> None:
        """Take a new request, or one of which something has changed.

        Args:
            request: The request.
            members: Its pods, as published.
            group_uid: Returns the uid of a PodGroup by namespace and name; empty when it does not exist.
            others: Warnings that are known already, by reason; empty ones count as none.
        """
        job = (request.namespace, request.name)
        self.drop(*job)
        found = {reason: sentence for reason, sentence in others.items() if sentence}
        chosen = requested_form(request) if any(task.chips for task in request.tasks) else None
        if isinstance(chosen, FormChoice) and chosen.is_guess:
            found[FORM_ASSUMED] = f"product form {chosen.form.name} is assumed, because {chosen.because}"
        if ignored := rules_of(request.labels, request.annotations).findings:
            found[FAULT_LABEL_IGNORED] = "; ".join(
                f"{one.field} is {one.value!r}: expected {one.wanted}; it counts as absent when a fault occurs"
                for one in ignored
            )
        if request.preemption is not None and request.preemption.ignored:
            found[PREEMPTION_IGNORED] = "; ".join(request.preemption.ignored)
        if members is None or not members.pods or not found:
            return
        about = _involved(members, group_uid(members.namespace, members.podgroup))
        key = f"{about.kind} {about.namespace}/{about.name} {about.uid}"
        self._about[key] = about
        self._key_of[job] = key
        self._jobs.setdefault(key, {})[job] = tuple(found)
        for reason, sentence in found.items():
            self._sentences.setdefault(reason, {})[key] = sentence

    def drop(self, namespace: str, name: str) -> None:
        """Take that a request is over."""
        key = self._key_of.pop((namespace, name), None)
        if key is None:
            return
        jobs = self._jobs[key]
        reasons = jobs.pop((namespace, name))
        left = {reason for others in jobs.values() for reason in others}
        for reason in reasons:
            if reason not in left:
                del self._sentences[reason][key]
        if not jobs:
            del self._jobs[key], self._about[key]

    def sentences(self, reason: str) -> Mapping[str, str]:
        """Sentences of a reason, by key of the object."""
        return self._sentences.get(reason, {})

    def involved(self, key: str) -> Involved | None:
        """Object of a sentence."""
        return self._about.get(key)


def _involved(members: MembersSeen, group_uid: str) -> Involved:
    if members.podgroup and group_uid:
        return Involved(
            api_version=PODGROUP_VERSION,
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
