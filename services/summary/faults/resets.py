"""What the agents in the containers of jobs must be told through ``reset-config-<job>``. Pure."""

from typing import NamedTuple

from berth.core.requests.fault_rules import FaultRules
from berth.formats.ascend.reset_config import after_restart, name_of, with_graceful_exit
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus
from berth.services.summary.faults.views import JobOwner


class ResetWish(NamedTuple):
    """A change of a ConfigMap ``reset-config-<job>``."""

    namespace: str
    name: str
    mark: str
    """Restart that it tells of."""
    leaves: bool
    """Before pods leave for sub-health; otherwise after a restart."""
    is_whole: bool = False
    """The whole job was restarted."""

    def applied(self, text: str, now_s: int) -> dict[str, str]:
        """Keys to write; none if nothing changes.

        Args:
            text: Present value of ``reset.json``.
            now_s: The time, in seconds since 1970.

        Raises:
            ReportError: The value cannot be read.
        """
        if self.leaves:
            return with_graceful_exit(text, now_s=now_s, leaves=True)
        keys = after_restart(text, now_s=now_s, is_whole=self.is_whole)
        return keys | with_graceful_exit(keys["reset.json"], now_s=now_s, leaves=False)


def wish_of(status: JobStatus, owner: JobOwner, rules: FaultRules) -> ResetWish | None:
    """What the agents of a job must be told now; None for nothing.

    Args:
        status: Status of its request.
        owner: Owner of the job.
        rules: What it says about faults.
    """
    recovery = status.recovery
    if recovery is None or recovery.how in {"mark", "backup"} or rules.process_recovery == "on":
        return None
    mark = f"{status.uid}/{recovery.since_ms}"
    if _is_over(status, recovery):
        return ResetWish(owner.namespace, name_of(owner.name), mark, leaves=False, is_whole=recovery.scope == "job")
    if recovery.kind == "SubHealthFault" and rules.strategy == "graceExit":
        return ResetWish(owner.namespace, name_of(owner.name), mark, leaves=True)
    return None


def _is_over(status: JobStatus, recovery: RecoveryStatus) -> bool:
    """Whether all replaced pods are bound."""
    if status.phase not in {"bound", "running"}:
        return False
    if recovery.scope == "job":
        return status.attempt > recovery.attempt
    return recovery.placed and not recovery.open
