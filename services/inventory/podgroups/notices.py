"""Messages about PodGroups that wait for admission: their pods do not exist yet and cannot carry them. Pure."""

from collections.abc import Mapping

from berth.formats.kubernetes.events import Involved
from berth.formats.kubernetes.objects import PODGROUP_VERSION
from berth.services.inventory.effects import PatchPodGroup


class AdmissionReasons:
    """Sentences by the PodGroup's uid, taken from the written conditions."""

    def __init__(self) -> None:
        self.sentences: dict[str, str] = {}
        self._about: dict[str, Involved] = {}
        self._uids: dict[tuple[str, str], str] = {}

    def see(self, effect: PatchPodGroup, *, has_pods: bool) -> None:
        """Take a patch. One without conditions changes nothing.

        Args:
            effect: The patch.
            has_pods: Whether pods of the PodGroup exist; then the message is reported on them.
        """
        status = effect.patch.get("status")
        conditions = status.get("conditions") if isinstance(status, Mapping) else None
        if not isinstance(conditions, list):
            return
        self.drop(effect.namespace, effect.name)
        message = next((one["message"] for one in conditions if one.get("type") == "Unschedulable"), "")
        if message and not has_pods:
            self.sentences[effect.uid] = message
            self._uids[effect.namespace, effect.name] = effect.uid
            self._about[effect.uid] = Involved(
                api_version=PODGROUP_VERSION,
                kind="PodGroup",
                namespace=effect.namespace,
                name=effect.name,
                uid=effect.uid,
            )

    def drop(self, namespace: str, name: str) -> None:
        """A PodGroup is gone, or no longer waits."""
        uid = self._uids.pop((namespace, name), None)
        if uid is not None:
            del self.sentences[uid], self._about[uid]

    def involved(self, key: str) -> Involved | None:
        """PodGroup of a sentence."""
        return self._about.get(key)
