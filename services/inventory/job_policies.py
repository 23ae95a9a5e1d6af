"""PriorityClasses and queues, and what is said of jobs that are accepted otherwise than their objects state."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from berth.formats.kubernetes.policies import PriorityClass, Queue
from berth.runtime.config import ConfigError
from berth.runtime.kube.port import Change
from berth.runtime.logs import Logger
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Admission, Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.subjects import Subjects
from berth.schemas.units import UnixMs
from berth.services.inventory.gang_collection import Gangs
from berth.services.inventory.publishing.publish_queue import PublishQueue
from berth.services.inventory.publishing.queues import QUEUE_IGNORED, Queues, amounts
from berth.services.inventory.publishing.warnings import RequestWarnings


class JobPolicies:
    """Priorities and queues of jobs.

    Args:
        gangs: The gangs.
        on_change: Called when something changed.
        make_queue: Makes a queue of Volcano that is missing.
        log: Logger of the process.
        applies_queues: Queues of Volcano are those of the cell.
    """

    def __init__(
        self,
        gangs: Gangs,
        on_change: Callable[[], None],
        make_queue: Callable[[str], None],
        log: Logger,
        *,
        applies_queues: bool,
    ) -> None:
        self.warnings = RequestWarnings()
        self.are_declared = asyncio.Event()
        """Set once queues are declared by which PodGroups may be admitted."""
        self._gangs = gangs
        self._on_change = on_change
        self._make_queue = make_queue
        self._log = log
        self._conflict = ""
        self._classes: dict[str, PriorityClass] = {}
        self._queues = Queues(are_applied=applies_queues)
        self._requested: dict[str, Counter[str]] | None = None
        """What open jobs request, by queue; None while it is not counted in this turn."""

    def replace_classes(self, classes: list[PriorityClass]) -> None:
        """Take all PriorityClasses."""
        self._classes = {one.metadata.name: one for one in classes}
        self._gangs.set_priority_classes(classes)
        self._on_change()

    def change_classes(self, changes: list[tuple[Change, PriorityClass]]) -> None:
        """Take changes of PriorityClasses."""
        for change, one in changes:
            if change == "DELETED":
                self._classes.pop(one.metadata.name, None)
            else:
                self._classes[one.metadata.name] = one
        self._gangs.set_priority_classes(list(self._classes.values()))
        self._on_change()

    def restore_queues(self, found: Iterable[QueueSeen]) -> None:
        """Restore the queues that are declared, by earlier runs or by persons."""
        for seen in found:
            self._queues.note_published(seen)
        self._set_tree()

    def note_queue(self, seen: QueueSeen) -> None:
        """Take a queue that is declared; those that this run publishes are known."""
        if seen.source != "kubernetes":
            self._queues.note_published(seen)
            self._set_tree()
            self._on_change()

    def note_decisions(
        self, decisions: Sequence[Admission], settings: Settings | None = None, *, are_all: bool = False
    ) -> None:
        """Take decisions of the dispatcher on PodGroups, in their order.

        Args:
            decisions: The decisions.
            settings: Its settings, if they are new.
            are_all: There are no others: none that was taken before counts.
        """
        groups = self._gangs.groups
        if are_all:
            groups.queues.forget_decisions()
        if settings is not None:
            groups.set_settings(settings)
        groups.decide(decisions)
        self._on_change()

    def check_one_source(self) -> None:
        """Check that queues are declared in one way.

        Raises:
            ConfigError: Queues are declared in two ways.
        """
        conflict = self._queues.conflict()
        if conflict:
            raise ConfigError(field="queues", value="true", expected=f"one source of queues: {conflict}")

    async def publish_queues(self, queue: PublishQueue, subjects: Subjects, at_ms: UnixMs) -> bool:
        """Publish changes of queues; returns whether all were stored."""
        if not self._queues.is_changed:
            return True
        before, self._conflict = self._conflict, self._queues.conflict()
        if self._conflict not in {"", before}:
            self._log.error("queues are not published", reason=self._conflict)
        facts = self._queues.due(at_ms)
        return await queue.publish(
            facts, lambda fact: subjects.fact_queue(fact.queue.name), self._queues.note_published
        )

    def replace_queues(self, queues: list[Queue]) -> None:
        """Take all queues of Volcano."""
        self._queues.replace(queues)
        self._judge_queues()

    def change_queues(self, changes: list[tuple[Change, Queue]]) -> None:
        """Take changes of queues of Volcano."""
        self._queues.change(changes)
        self._judge_queues()

    def begin_turn(self) -> None:
        """Note that requests may have come or gone."""
        self._requested = None

    def judge(self, request: JobRequest, warnings: Mapping[str, str] | None = None) -> None:
        """Take a request that is published, or of whose queue something has changed.

        Args:
            request: The request.
            warnings: What else is to be said of it, as sentences by reason.
        """
        members = self._gangs.published_members(request.namespace, request.name)
        queue_warning = self._queues.warning(request.queue, lambda: self._requested_in(request.queue))
        others = {**(warnings or {}), QUEUE_IGNORED: queue_warning}
        self.warnings.judge(request, members, self._gangs.group_uid, others)

    def _judge_queues(self) -> None:
        self.begin_turn()
        self._set_tree()
        for name in self._queues.missing():
            self._make_queue(name)
        if not self._queues.are_applied:
            for request in self._gangs.open_requests():
                self.judge(request)
        self._on_change()

    def _set_tree(self) -> None:
        """Let PodGroups be admitted by the queues that are declared, if any are."""
        tree = self._queues.tree()
        self._gangs.groups.set_queues(tree)
        if tree is not None:
            self.are_declared.set()

    def _requested_in(self, queue: str) -> Counter[str]:
        if self._requested is None:
            self._requested = amounts(self._gangs.open_requests())
        return self._requested.get(queue, Counter())
