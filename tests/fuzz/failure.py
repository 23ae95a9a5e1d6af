"""What a history shows to be wrong."""


class Failure(AssertionError):  # noqa: N818  # it is what a check found, not an error of the check
    """A check that failed.

    Attributes:
        kind: Which, in few words that stay the same while the history is made shorter.
        details: What differs.
    """

    def __init__(self, kind: str, details: str = "") -> None:
        super().__init__(f"{kind}: {details}" if details else kind)
        self.kind = kind
        self.details = details
