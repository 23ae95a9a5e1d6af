"""Numbers in sentences: a count with its noun, and lists of numbers."""

from collections.abc import Iterable


def pluralize(count: int, noun: str) -> str:
    """A number and what it counts: ``1 node``, ``2 leaves``."""
    if count == 1:
        return f"1 {noun}"
    return (
        f"{count} {noun[:-1]}ves" if noun.endswith("leaf") else f"{count} {noun}{'es' if noun.endswith('ch') else 's'}"
    )


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, runs of three or more as ranges: ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in parts)  # noqa: PLR2004  # two are no range
