"""Errors of the shell, told apart by the next action: try again, set aside, or stop."""


class TransientError(Exception):
    """The world may heal: a time-out, a conflict, no responders. Keep the position and try again.

    Attributes:
        retry_after_s: Seconds to wait before the next try; 0 leaves the wait to the caller.
    """

    def __init__(self, reason: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class PoisonError(Exception):
    """The message can never be handled. Store it as a dead letter and move on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FatalError(Exception):
    """The process cannot go on: it ends with ``exit_code`` and is started again by whoever watches it."""

    exit_code = 1
