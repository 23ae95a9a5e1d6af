"""What a run of many seeds came to: figures on the terminal, and as a page of the documentation."""

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Final

from berth.runtime.fault_points import BINDER_POINTS, POINTS, RECOVERY_POINTS, VOLUME_POINTS
from berth.schemas.refusal import Code
from tests.sim.batch import Result
from tests.sim.middle import MIDDLE
from tests.sim.observer import CHECKS
from tests.sim.queue_watch import QUEUED
from tests.sim.steady import STEADY
from tests.sim.story import CONTESTED_FROM, OWNERS, OWNERS_FROM, QUEUES, RIVALS, UNREACHED, WEIGHTS

AT_REST: Final = ("replay", "sleepers", "starts", "statuses", "pods at rest")
"""Checks at the end."""
MANY: Final = (*MIDDLE, *STEADY, *QUEUED, "PodGroups")
"""Checks of a run of :data:`ALL` seeds or more."""
ALL: Final = 100
"""A run of so many seeds must touch everything."""
_GROUPS: Final = {
    "Events": "event",
    "Checks": "check",
    "Fault points passed": "point",
    "Processes that died at a fault point": "death",
    "Refusals": "refusal",
    "Troubles of the API server": "trouble",
    "Processes that ended by an error of their own": "end",
}


def untouched(count: Counter[str], seeds: int) -> dict[str, list[str]]:
    """What never happened in so many seeds: kinds of events, fault points that are passed, refusals.

    A run that must have many stories in which the fences are tried, whatever its first seed, must try them in each way;
    likewise those in which owners are busy.
    """
    rare = [verbs for verbs, first in ((OWNERS, OWNERS_FROM), (RIVALS, CONTESTED_FROM)) if seeds >= first + ALL]
    verbs = (*WEIGHTS, *dict.fromkeys(QUEUES), *(dict.fromkeys(verb for verbs in rare for verb in verbs)))
    points = (*POINTS, *BINDER_POINTS, *VOLUME_POINTS, *RECOVERY_POINTS)
    codes: tuple[str, ...] = Code.__args__  # type: ignore[attr-defined]  # of a Literal
    return {
        "events": [verb for verb in verbs if not count[f"event: {verb}"]],
        "fault points": [point for point in points if not count[f"point: {point}"]],
        "refusals": [code for code in codes if code not in UNREACHED and not count[f"refusal: {code}"]],
    }


def unchecked(result: Result) -> list[str]:
    """Checks that had nothing to check."""
    names = (*CHECKS, *AT_REST, *(MANY if result.seeds >= ALL else ()))
    return [name for name in names if not result.count[f"check: {name}"]]


def heading(result: Result) -> str:
    """Figures in one line."""
    count, steps = result.count, result.steps
    return (
        f"{result.seeds} seeds, {count['steps']} steps ({min(steps)} to {max(steps)} in a seed; median"
        f" {median(steps):.0f}), {count['records']} records, {count['kills']} kills,"
        f" {count['virtual ms'] / 3_600_000:.1f} simulated hours"
    )


def wrongs(result: Result) -> list[str]:
    """Why a run fails, in lines; empty if it does not."""
    lines = [f"nothing was checked: {name}" for name in unchecked(result)]
    if result.seeds >= ALL:
        lines += [
            f"never touched, {what}: {', '.join(names)}"
            for what, names in untouched(result.count, result.seeds).items()
            if names
        ]
    lines += [f"{times} x {kind}" for kind, times in Counter(one.kind for one in result.failed).most_common()]
    if result.failed:
        lines.append(f"{len(result.failed)} seeds fail")
    return lines


def page(result: Result, command: str) -> str:
    """The page ``docs/results/simulation.md``."""
    return "\n".join(_page(result, command))


def _page(result: Result, command: str) -> Iterator[str]:
    yield "# Simulation of whole cells"
    yield ""
    yield f"Made by `{command}`; nothing here is written by hand."
    yield "What happens in a seed and what is checked is in [testing.md](../testing.md#simulation)."
    yield ""
    for part in heading(result).split(", "):
        yield f"- {part}"
    yield f"- {len(result.failed)} seeds fail"
    for what, names in untouched(result.count, result.seeds).items():
        yield f"- {what} that never occurred: {', '.join(names) or 'none'}"
    for title, group in _GROUPS.items():
        names = sorted(name for name in result.count if name.startswith(f"{group}: ") and result.count[name])
        if names:
            yield from ("", f"## {title}", "", "| what | times |", "|---|---:|")
            for name in names:
                yield f"| {name.removeprefix(f'{group}: ').replace('|', ' ')} | {result.count[name]:,} |"
    yield ""
