"""Orders to the agents in the containers of jobs, through ``reset-config-<job>``. Pure."""

from typing import NamedTuple

from berth.core.requests.fault_rules import FaultRules
from berth.formats.ascend.reset_config import (
    CHECK_CODE_KEY,
    KEY,
    after_restart,
    is_of_later,
    name_of,
    recovery_mark,
    with_graceful_exit,
)
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.status import JobStatus
from berth.services.summary.faults.views import JobOwner


class ResetUpdate(NamedTuple):
    """A change of a ConfigMap ``reset-config-<job>``."""

    namespace: str
    name: str
    mark: str
    """Restart that it is about, by :func:`~berth.formats.ascend.reset_config.recovery_mark`."""
    is_whole: bool
    """The whole job was restarted."""

    def applied(self, text: str, now_s: int, *, saves: str, code: str = "") -> dict[str, str]:
        """Keys to write. Agents need not save any more, unless the binder asked them to for a later recovery.

        Args:
            text: Present value of ``reset.json``.
            now_s: The time, in seconds since 1970.
            saves: Recovery for which agents were asked to save; empty for none.
            code: Present value of ``checkCode``.

        Raises:
            ReportError: The value cannot be read.
        """
        keys = after_restart(text, now_s=now_s, is_whole=self.is_whole, code=code)
        if is_of_later(saves, self.mark):
            return keys
        return keys | with_graceful_exit(keys[KEY], now_s=now_s, leaves=False, code=keys[CHECK_CODE_KEY])


def update_of(status: JobStatus, owner: JobOwner, rules: FaultRules) -> ResetUpdate | None:
    """The order to the agents of a job now; None for none.

    Args:
        status: Status of its request.
        owner: Owner of the job.
        rules: What it says about faults.
    """
    recovery = status.recovery
    if recovery is None or recovery.how in {"mark", "backup"} or rules.process_recovery == "on":
        return None
    if not _is_over(status, recovery):
        return None
    mark = recovery_mark(status.uid, recovery.since_ms)
    return ResetUpdate(owner.namespace, name_of(owner.name), mark, is_whole=recovery.scope == "job")


def _is_over(status: JobStatus, recovery: RecoveryStatus) -> bool:
    """Whether all replaced pods are bound."""
    if status.phase not in {"bound", "running"}:
        return False
    if recovery.scope == "job":
        return status.attempt > recovery.attempt
    return recovery.placed and not recovery.open
