"""Event texts of PodGroups that wait for admission: they have no pods yet whose events could tell. Pure."""

from collections.abc import Mapping

from berth.formats.kubernetes.events import Involved
from berth.services.inventory.effects import SetGroup

_API_VERSION = "scheduling.volcano.sh/v1beta1"


class GroupNotes:
    """Sentences by the PodGroup's uid, taken from the conditions that are written."""

    def __init__(self) -> None:
        self.sentences: dict[str, str] = {}
        self._about: dict[str, Involved] = {}
        self._uids: dict[tuple[str, str], str] = {}

    def see(self, effect: SetGroup, *, has_pods: bool) -> None:
        """Look at a patch: one without conditions changes nothing.

        Args:
            effect: The patch.
            has_pods: Whether the group has pods; then their own events give the reason.
        """
        status = effect.patch.get("status")
        conditions = status.get("conditions") if isinstance(status, Mapping) else None
        if not isinstance(conditions, list):
            return
        self.drop(effect.namespace, effect.name)
        text = next((one["message"] for one in conditions if one.get("type") == "Unschedulable"), "")
        if text and not has_pods:
            self.sentences[effect.uid] = text
            self._uids[effect.namespace, effect.name] = effect.uid
            self._about[effect.uid] = Involved(
                api_version=_API_VERSION,
                kind="PodGroup",
                namespace=effect.namespace,
                name=effect.name,
                uid=effect.uid,
            )

    def drop(self, namespace: str, name: str) -> None:
        """A PodGroup is gone, or waits no more."""
        uid = self._uids.pop((namespace, name), None)
        if uid is not None:
            del self.sentences[uid], self._about[uid]

    def involved(self, key: str) -> Involved | None:
        """PodGroup that a sentence is about."""
        return self._about.get(key)
