"""All benches, by the name that ``python -m bench`` takes, each at its full size and in its smallest form."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from bench import (
    ask,
    bind,
    commands,
    fault,
    gang,
    gateway,
    groups,
    health,
    metrics,
    one,
    page,
    pairs,
    preempt,
    programs,
    queues,
    reasons,
    replay,
    restart,
    score,
    signatures,
    sim,
    simulate,
    spine,
    superpod,
    switch,
    tracing,
    usage,
    watch,
)
from bench.kube import bindings
from bench.kube import gang as kube_gang
from bench.load import hour, nodes, reports, waiting
from bench.report import Report

_Size = TypeVar("_Size")


class Bench(NamedTuple):
    """A bench.

    Attributes:
        full: Runs it at its full size.
        small: Runs every row of it in the smallest form, which shows that it runs, and measures nothing of use.
        rows: Rows of the smallest form, at least.
        limit_s: Longest time that the smallest form may take, on a busy machine.
        is_long: It needs an hour or most of a machine, so that ``all`` leaves it out.
    """

    full: Callable[[], Report]
    small: Callable[[], Report]
    rows: int
    limit_s: float
    is_long: bool = False


def _bench(
    run: Callable[[_Size], Report],
    full: _Size,
    small: _Size,
    rows: int,
    *,
    limit_s: float = 60.0,
    is_long: bool = False,
) -> Bench:
    return Bench(partial(run, full), partial(run, small), rows, limit_s, is_long)


BENCHES: Final = {
    "score": _bench(score.run, score.FULL, score.SMALL, 7),
    "spine": _bench(spine.run, spine.FULL, spine.SMALL, 12),
    "metrics": _bench(metrics.run, pairs.FULL, pairs.SMALL, 5),
    "tracing": _bench(tracing.run, pairs.FULL, pairs.SMALL, 5),
    "signatures": _bench(signatures.run, pairs.FULL, pairs.SMALL, 5),
    "waiting": _bench(waiting.run, waiting.FULL, waiting.SMALL, 26),
    "reasons": _bench(reasons.run, reasons.FULL, reasons.SMALL, 10, limit_s=90.0),
    "reports": _bench(reports.run, reports.FULL, reports.SMALL, 8),
    "gang": _bench(gang.run, gang.FULL, gang.SMALL, 3),
    "switch": _bench(switch.run, switch.FULL, switch.SMALL, 28, limit_s=90.0),
    "queues": _bench(queues.run, queues.FULL, queues.SMALL, 4),
    "preempt": _bench(preempt.run, preempt.FULL, preempt.SMALL, 15),
    "ask": _bench(ask.run, ask.FULL, ask.SMALL, 6),
    "groups": _bench(groups.run, groups.FULL, groups.SMALL, 3),
    "superpod": _bench(superpod.run, superpod.FULL, superpod.SMALL, 9),
    "bind": _bench(bind.run, bind.FULL, bind.SMALL, 2, limit_s=90.0),
    "watch": _bench(watch.run, watch.FULL, watch.SMALL, 4, limit_s=90.0),
    "usage": _bench(usage.run, usage.FULL, usage.SMALL, 21),
    "simulate": _bench(simulate.run, simulate.FULL, simulate.SMALL, 9),
    "kube-gang": _bench(kube_gang.run, kube_gang.FULL, kube_gang.SMALL, 18, limit_s=120.0),
    "kube": _bench(bindings.run, bindings.FULL, bindings.SMALL, 26, limit_s=240.0),
    "replay": _bench(replay.run, replay.FULL, replay.SMALL, 12),
    "restart": _bench(restart.run, restart.FULL, restart.SMALL, 23, limit_s=180.0),
    "fault": _bench(fault.run, fault.FULL, fault.SMALL, 15, limit_s=120.0),
    "health": _bench(health.run, health.FULL, health.SMALL, 7),
    "sim": _bench(sim.run, sim.FULL, sim.SMALL, 1),
    "commands": _bench(commands.run, commands.FULL, commands.SMALL, 12),
    "programs": _bench(programs.run, programs.FULL, programs.SMALL, 6),
    "page": _bench(page.run, page.FULL, page.SMALL, 11, limit_s=90.0),
    "one": _bench(one.run, one.FULL, one.SMALL, 10, limit_s=120.0),
    "gateway": _bench(gateway.run, gateway.FULL, gateway.SMALL, 10),
    "load": _bench(hour.run, hour.FULL, hour.SMALL, 72, is_long=True),
    "nodes": _bench(nodes.run, nodes.FULL, nodes.SMALL, 15, is_long=True),
}
