"""What the API tasks of an inventory are doing, for tests that wait for it."""

from berth.services.inventory.publishing.api_tasks import ApiTasks


def is_idle(tasks: ApiTasks) -> bool:
    """Whether no task runs or waits."""
    return not (is_busy(tasks) or tasks._waiting)


def is_busy(tasks: ApiTasks) -> bool:
    """Whether a task runs or is ready; tasks that wait for a retry do not count."""
    return bool(tasks._ready or tasks._busy)
