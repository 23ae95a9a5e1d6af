"""Lists the pods of a namespace when the binder has bound some that neither list nor watch has shown."""

from collections.abc import Callable
from functools import partial
from typing import Final

from berth.formats.ascend.mark_proofs import MarkProofs
from berth.formats.kubernetes.bound_pods import counted, identity_of
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Listed
from berth.formats.kubernetes.paths import api_path
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.kube.listing import PAGE_SIZE, objects_of
from berth.runtime.kube.port import Api
from berth.runtime.logs import Logger
from berth.schemas.facts import OutcomeSeen
from berth.schemas.units import UnixMs
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.pods.unseen import JobKey, Unseen
from berth.services.inventory.publishing.api_tasks import ApiTask, ApiTasks

UNSEEN_MS: Final = 5_000
"""How long after its binding a pod may be unknown; then the pods of its namespace are listed."""


class _PodHead(Lean, frozen=True):
    """What a lookup reads of a pod: the rest of it may be invalid."""

    metadata: Meta = Meta()


class PodLookups:
    """Finds out what became of pods that were bound and not seen.

    Args:
        pods: All bound pods; what is gone is noted there.
        api: The API server.
        api_tasks: Calls of the API server.
        clock: Source of time.
        log: Receives why the server refuses a list.
        marks: Says of which pods the marks count.
        on_change: Called when a list has arrived.
    """

    def __init__(
        self,
        pods: Pods,
        api: Api,
        api_tasks: ApiTasks,
        clock: Clock,
        log: Logger,
        *,
        marks: MarkProofs,
        on_change: Callable[[], None],
    ) -> None:
        self._pods = pods
        self._api = api
        self._api_tasks = api_tasks
        self._clock = clock
        self._log = log
        self._marks = marks
        self._on_change = on_change
        self._unseen = Unseen(pods.lacks, wait_ms=UNSEEN_MS)
        self._asked: dict[str, dict[JobKey, OutcomeSeen]] = {}
        """Outcomes whose pods are to be found in the next list, by namespace."""

    def note_outcome(self, outcome: OutcomeSeen) -> None:
        """Take a result of the binder."""
        self._unseen.note(outcome, self._clock.now_ms())

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`look` must be called even if nothing changes; None for never."""
        return self._unseen.next_due_ms()

    def begin_due(self, now_ms: UnixMs) -> None:
        """Begin the lookups that are due: one list for each namespace."""
        for outcome in self._unseen.due(now_ms):
            asked = self._asked.setdefault(outcome.namespace, {})
            asked[outcome.namespace, outcome.name] = outcome
            if len(asked) == 1:
                self._put(outcome.namespace)

    def _put(self, namespace: str) -> None:
        what = f"list the bound pods of namespace {namespace}"
        self._api_tasks.put(ApiTask(("bound", namespace), what, namespace, partial(self._list, namespace)))

    async def _list(self, namespace: str) -> None:
        """List the pods; of those that were bound before, what is not there is gone.

        If a pod is there that no watch has shown, nothing is said of its job yet: a fact without that pod would give
        its chips back. The pods are listed again after a while.

        Raises:
            TransientError: The server did not answer, or refuses the list; it is asked again.
        """
        asked = self._asked.pop(namespace)
        try:
            there = await self._ranks(namespace)
        except TransientError:
            self._ask_again(namespace, asked)
            raise
        except PoisonError as error:
            self._ask_again(namespace, asked)
            self._log.warning("pods that were bound cannot be listed", namespace=namespace, reason=error.reason)
            raise TransientError(error.reason) from error
        for outcome in asked.values():
            if not self._pods.lacks(outcome):  # a watch has shown them, or the attempt is over
                continue
            if self._pods.knows(outcome, there.get((outcome.uid, outcome.attempt), ())):
                self._pods.note_bound(outcome)
            else:
                self._unseen.note_again(outcome, self._clock.now_ms())
        self._on_change()

    def _ask_again(self, namespace: str, asked: dict[JobKey, OutcomeSeen]) -> None:
        """Keep outcomes whose list failed, except those that newer ones have replaced."""
        self._asked[namespace] = asked | self._asked.get(namespace, {})

    async def _ranks(self, namespace: str) -> dict[tuple[str, int], set[int]]:
        """Ranks of the bound pods that the server has, by uid of the job and attempt.

        Raises:
            TransientError: The server did not answer.
            PoisonError: It refuses the list, or the answer is none.
        """
        path = api_path("v1", "namespaces", namespace, "pods")
        found: dict[tuple[str, int], set[int]] = {}
        bound = {"fieldSelector": "spec.nodeName!="}
        pods = objects_of(self._api, path, Listed[_PodHead], page_size=PAGE_SIZE, selectors=bound)
        async for pod in pods:
            identity = identity_of(counted(pod.metadata, self._marks), [])
            if identity is not None:
                found.setdefault((identity.uid, identity.attempt), set()).add(identity.rank)
        return found
