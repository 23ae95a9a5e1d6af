"""Faults of the core: data, not formatted text."""


class CoreError(Exception):
    """Base of the core's errors."""


class InvariantError(CoreError):
    """A rule that must always hold does not: a fault of Berth, never of its input.

    Attributes:
        rule: The rule, in words.
        subject: What breaks it: a node, a gang, a sequence.
    """

    def __init__(self, rule: str, *, subject: str) -> None:
        super().__init__(f"{subject}: {rule}")
        self.rule = rule
        self.subject = subject


class HistoryError(CoreError):
    """Messages that do not follow one another.

    Attributes:
        wanted: Sequence that should have come.
        got: Sequence that came.
    """

    def __init__(self, *, wanted: int, got: int) -> None:
        super().__init__(f"sequence {got} came, {wanted} was next")
        self.wanted = wanted
        self.got = got
