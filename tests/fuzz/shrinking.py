"""Making a failing history shorter: steps are left out as long as the same check fails."""

from collections.abc import Callable, Sequence


def shortest(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A part of some steps that still fails, and of which no single step can be left out.

    Args:
        steps: Steps that fail.
        fails: Whether some of them, in their order, do.
    """
    kept = list(steps)
    size = max(len(kept) // 2, 1)
    while True:
        is_shorter = False
        start = 0
        while start < len(kept):
            without = kept[:start] + kept[start + size :]
            if fails(without):
                kept, is_shorter = without, True
            else:
                start += size
        if size > 1:
            size = max(size // 2, 1)
        elif not is_shorter:
            return kept
