"""Lists the pods of a namespace when the binder has bound some that neither list nor watch has shown."""

from collections.abc import Callable
from functools import partial

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.pods import PodAsks
from berth.runtime.clock import Clock
from berth.runtime.kube.port import Api
from berth.schemas.facts import OutcomeSeen
from berth.schemas.units import UnixMs
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.pods.rows import read_row
from berth.services.inventory.pods.unseen import Unseen
from berth.services.inventory.publishing.api_tasks import ApiTask, ApiTasks


class _Listed(Lean, frozen=True):
    """Pods of a namespace."""

    items: list[Pod] = []


class PodLookups:
    """Finds out what became of pods that were bound and not seen.

    Args:
        pods: All bound pods; what is gone is noted there.
        api: The API server.
        api_tasks: Calls of the API server.
        clock: Source of time.
        wait_s: How long list and watch may take to show a pod that was bound.
        on_change: Called when a list has arrived.
    """

    def __init__(
        self, pods: Pods, api: Api, api_tasks: ApiTasks, clock: Clock, *, wait_s: float, on_change: Callable[[], None]
    ) -> None:
        self._pods = pods
        self._api = api
        self._api_tasks = api_tasks
        self._clock = clock
        self._on_change = on_change
        self._asks = PodAsks()
        self._unseen = Unseen(pods.lacks, wait_ms=round(wait_s * 1000))

    def note_outcome(self, outcome: OutcomeSeen) -> None:
        """Take a result of the binder."""
        self._unseen.note(outcome, self._clock.now_ms())

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`look` must be called even if nothing changes; None for never."""
        return self._unseen.next_due_ms()

    def look(self, now_ms: UnixMs) -> None:
        """Begin the lookups that are due."""
        for outcome in self._unseen.due(now_ms):
            name = f"{outcome.namespace}/{outcome.name}"
            self._api_tasks.put(ApiTask(("bound", name), f"list the pods of {name}", partial(self._list, outcome)))

    async def _list(self, outcome: OutcomeSeen) -> None:
        """List the pods; of those that were bound before, what is not there is gone."""
        path = api_path("v1", "namespaces", outcome.namespace, "pods")
        found = await self._api.get(path, _Listed, params={"fieldSelector": "spec.nodeName!="})
        rows = (read_row(pod, self._asks) for pod in found.items)
        identities = [row.identity for row in rows if row is not None and row.identity is not None]
        there = {one.rank for one in identities if (one.uid, one.attempt) == (outcome.uid, outcome.attempt)}
        self._pods.note_bound(outcome, there=there)
        self._on_change()
