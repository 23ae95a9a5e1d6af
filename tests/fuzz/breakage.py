"""Errors of Berth that histories bring about: requests whose decision fails at a certain point, however sound they are.

The gangs are set aside, and everything else must go on as it does without them.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from berth.core.placement import planned_pods, scoring
from berth.core.scheduling import scheduler

MARK: Final = "breaks"
"""Node selector of a request that breaks something, and its value: what."""
POINTS: Final = ("scoring", "planning", "reading")


class BrokenError(RuntimeError):
    """What fails."""


@contextlib.contextmanager
def breakable() -> Iterator[None]:
    """Let requests with the mark fail."""
    patched: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, fails: Callable[..., bool]) -> None:  # noqa: ANN401  # a module or a class
        whole = getattr(owner, name)

        def partly(*args: Any, **named: Any) -> Any:  # noqa: ANN401  # as the original
            if fails(*args):
                raise BrokenError(name)
            return whole(*args, **named)

        patched.append((owner, name, whole))
        setattr(owner, name, partly)

    patch(scoring, "class_reason", lambda shape, _: (MARK, "scoring") in shape.selector)
    patch(
        planned_pods.PlannedPods,
        "plan",
        lambda _, gang, __: any((MARK, "planning") in shape.selector for shape, ___ in gang.request_class),
    )
    patch(scheduler, "gang_of", lambda _, request: request.node_selector.get(MARK) == "reading")
    try:
        yield
    finally:
        for owner, name, whole in reversed(patched):
            setattr(owner, name, whole)
