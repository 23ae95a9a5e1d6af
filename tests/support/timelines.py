"""Timelines for tests of statistics and pictures: deterministic, of any size, and unusual ones."""

from random import Random
from typing import Final

from berth.core.simulation.timeline import Frame, JobTimeline, Moment, Timeline

HOUR_MS: Final = 3_600_000
_NODE_CHIPS: Final = 8
_CHIPS: Final = (1, 1, 1, 2, 4, 8, 8, 16, 32, 64, 128, 256)
_CAUSES: Final = ("partial", "scattered", "topology", "reserved")


def a_job(
    name: str = "a",
    *,
    asked: int = 0,
    placed: int = -1,
    ended: int = -1,
    chips: int = 8,
    refused: str = "no-room",
    queue: str = "",
    **fields: int,
) -> JobTimeline:
    """A job with a pod a node; a refusal only while it is not placed."""
    pods = max(1, chips // _NODE_CHIPS)
    return JobTimeline(
        namespace="team",
        name=name,
        chips=chips,
        pods=pods,
        priority=fields.pop("priority", 0),
        asked_ms=asked,
        placed_ms=placed,
        ended_ms=ended,
        refused="" if placed >= 0 else refused,
        nodes=pods if placed >= 0 else 0,
        queue=queue,
        **fields,
    )


def a_moment(at: int, used: int, *, chips: int = 16, waiting: int = 0, **blocked: int) -> Moment:
    """A moment; blocked chips by keyword."""
    return Moment(at_ms=at, chips=chips, used=used, waiting=waiting, waiting_chips=8 * waiting, blocked=blocked)


def a_timeline(
    *jobs: JobTimeline, moments: tuple[Moment, ...] = (), end: int = 100, title: str = "a course"
) -> Timeline:
    """A course from 0 on without nodes."""
    return Timeline(title, {"queue_policy": "skip"}, 0, end, list(jobs), list(moments))


def made_up(
    title: str = "queue_policy=skip",
    *,
    seed: int = 1,
    nodes: int = 48,
    jobs: int = 400,
    frames: int = 20,
    leaf: int = 16,
) -> Timeline:
    """A course that looks like one of a busy cluster; its parts need not agree with one another.

    Args:
        title: Title of it.
        seed: Same seed, same course.
        nodes: Nodes of 8 chips.
        jobs: Jobs; some are rejected, taken back, waiting and running at the end.
        frames: Frames, evenly over the time.
        leaf: Nodes below a leaf switch; 0 for no leaf switches.
    """
    random = Random(seed)  # noqa: S311  # no secret
    end_ms = max(1, jobs) * HOUR_MS // 4
    asked = sorted(random.randrange(end_ms) for _ in range(jobs))
    return Timeline(
        title=title,
        settings={"queue_policy": title, "nodes": str(nodes), "seed": str(seed)},
        begin_ms=0,
        end_ms=end_ms,
        jobs=[_job(random, number, at_ms, leaf) for number, at_ms in enumerate(asked)],
        moments=_moments(random, nodes * _NODE_CHIPS, end_ms, 2 * jobs),
        nodes=[f"node-{number:04}" for number in range(nodes)],
        node_chips=[_NODE_CHIPS] * nodes,
        leaves=[f"leaf-{number // leaf:03}" for number in range(nodes)] if leaf else [],
        frames=[Frame(number * end_ms // frames, _used(random, nodes)) for number in range(frames)],
    )


def _job(random: Random, number: int, asked_ms: int, leaf: int) -> JobTimeline:
    chips = random.choice(_CHIPS)
    name = f"job-{number:06}"
    fate = random.randrange(100)
    if fate < 2:
        return a_job(name, asked=asked_ms, chips=chips, left_ms=asked_ms + 1, refused="no-room" if fate else "")
    if fate == 2:
        return a_job(name, asked=asked_ms, chips=chips)
    wait_ms = int(random.lognormvariate(1, 2) * chips * 20_000) if random.random() < 0.6 else 0
    placed_ms = asked_ms + wait_ms
    least = -(-max(1, chips // _NODE_CHIPS) // leaf) if leaf else 0
    return a_job(
        name,
        asked=asked_ms,
        placed=placed_ms,
        ended=-1 if fate == 3 else placed_ms + random.randrange(1, 50 * HOUR_MS),
        chips=chips,
        priority=random.choice((0, 0, 10)),
        leaves=least + random.choice((0, 0, 0, 1, 2)) * (chips > _NODE_CHIPS) if leaf else 0,
        leaves_least=least,
        superpods=1 if leaf else 0,
        superpods_least=1 if leaf else 0,
    )


def _moments(random: Random, chips: int, end_ms: int, count: int) -> list[Moment]:
    found = []
    used = waiting = 0
    for number in range(count):
        used = min(chips, max(0, used + random.randrange(-30, 34)))
        waiting = max(0, waiting + random.randrange(-3, 4))
        idle = chips - used
        blocked = {cause: random.randrange(idle // 4 + 1) for cause in _CAUSES} if waiting else {}
        found.append(Moment(number * end_ms // count, chips, used, waiting, waiting * 20, blocked))
    return found


def _used(random: Random, nodes: int) -> bytes:
    return bytes(255 if random.randrange(60) == 0 else random.choice((0, 2, 4, 8, 8, 8)) for _ in range(nodes))


ODD: Final = {
    "nothing": Timeline("nothing", {}, 0, 0, [], []),
    "no jobs": Timeline("no jobs", {}, 0, HOUR_MS, [], [Moment(0, 8, 0, 0, 0)], ["n"], [8], [], [Frame(0, b"\0")]),
    "no leaves": made_up("no leaves", nodes=20, jobs=30, leaf=0),
    "one node": made_up("one node", nodes=1, jobs=5, frames=3),
    "never placed": a_timeline(
        a_job(chips=512), moments=(a_moment(0, 0, waiting=1, constraint=16),), title="never placed"
    ),
    "no time": a_timeline(a_job(placed=0, ended=0), moments=(a_moment(0, 8),), end=0, title="no time"),
    "names to escape": a_timeline(
        a_job("x", placed=5, ended=9), a_job("y", placed=7, ended=9, priority=2), title='_<b>$a$ & "b"</b> | c\''
    ),
}
"""Courses at the edge, by what is odd about them."""
