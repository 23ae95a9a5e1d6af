"""The Events that the inventory writes, by reason."""

from functools import partial

from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api
from berth.schemas.units import UnixMs
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.gangs.priorities import PRIORITY_ASSUMED
from berth.services.inventory.gangs.warnings import CONSTRAINT_IGNORED, GANG_UNKNOWN
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.api_tasks import ApiTasks
from berth.services.inventory.publishing.event_reporter import EventReporter
from berth.services.inventory.publishing.queues import QUEUE_IGNORED
from berth.services.inventory.publishing.warnings import (
    FAULT_LABEL_IGNORED,
    FORM_ASSUMED,
    PREEMPTION_IGNORED,
    RequestWarnings,
)


class Reporters:
    """One reporter for each reason.

    Args:
        api: Where Events are written.
        clock: Source of time.
        config: Settings.
        tasks: Makes the calls.
        instruments: Of the process.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        config: InventoryConfig,
        tasks: ApiTasks,
        instruments: Instruments[InventoryMetrics],
    ) -> None:
        reporter = partial(EventReporter, api, clock, config, tasks, instruments)
        self.nodes = reporter(reason="NodeInvalid")
        self.moves = reporter(reason="NodeMoved")
        self.pods = reporter(reason="ChipsInvalid")
        self.checkpoints = reporter(reason="CheckpointIgnored")
        self.twice = reporter(reason="ChipTwice")
        self.marks = reporter(reason="MarkFalse")
        self.switches = reporter(reason="SwitchesInvalid")
        self.health = reporter(reason="HealthSuspect")
        self.jobs = {
            reason: reporter(reason=reason)
            for reason in (
                CONSTRAINT_IGNORED,
                FAULT_LABEL_IGNORED,
                FORM_ASSUMED,
                GANG_UNKNOWN,
                PREEMPTION_IGNORED,
                PRIORITY_ASSUMED,
                QUEUE_IGNORED,
            )
        }
        self.groups = reporter(reason="EnqueueFailed", is_fault=False)
        self._all = (
            self.nodes,
            self.moves,
            self.pods,
            self.checkpoints,
            self.twice,
            self.marks,
            self.switches,
            self.health,
            self.groups,
            *self.jobs.values(),
        )

    def report_jobs(self, warnings: RequestWarnings) -> None:
        """Report the warnings about accepted requests."""
        for reason, reporter in self.jobs.items():
            reporter.report(warnings.sentences(reason), warnings.involved)

    def next_due_ms(self) -> UnixMs | None:
        """When a held-back Event is due though nothing has changed; None for never."""
        return min((due for one in self._all if (due := one.next_due_ms()) is not None), default=None)
