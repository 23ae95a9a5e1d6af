"""A wrong field of a pod, as the end of a sentence after the name of the pod."""

from berth.formats.shortened import shortened


class WrongFieldError(Exception):
    """A wrong field; the text has its path, its value and valid values.

    Attributes:
        field: Path, such as ``spec.overhead.cpu``.
        value: The value.
        expected: Valid values.
        text: The text, where several fields are wrong together.
    """

    def __init__(self, field: str, value: object, expected: str, *, text: str = "") -> None:
        super().__init__(text or f"has {field} of {shortened(value)}: expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected
