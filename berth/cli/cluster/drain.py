"""``berth drain`` and ``berth undrain``: take nodes out of service for maintenance, and return them."""

from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, caller, connected, run
from berth.cli.cluster.drain_list import drains_of, known_names, row_of
from berth.cli.cluster.drain_rows import KINDS, DrainRow, ranks_words, since_words
from berth.cli.durations import option_ms
from berth.cli.output import FAILED, WRONG_USE, CommandError, emit, listed, near_names, print_result
from berth.core.state.cell import State
from berth.core.text import DRAINED, pluralize
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.runtime.recording import when_of
from berth.schemas.envelope import encode
from berth.schemas.fault_facts import REASON_MAX, DrainKind, DrainSeen

Target = tuple[DrainKind, str]


class UndrainedRow(msgspec.Struct, frozen=True):
    """A drain that was withdrawn, as ``--json`` prints it."""

    kind: DrainKind
    name: str


def drain(
    name: str,
    *,
    kind: DrainKind | None = None,
    at: str = "",
    grace: str = "",
    reason: str = "",
    force: bool = False,
    common: Common | None = None,
) -> int:
    """Take a node, or all nodes of a leaf switch or SuperPoD, out of service: they accept no new work.

    Args:
        name: Name of the node, leaf switch or SuperPoD.
        kind: What it names: node, leaf or superpod. Only needed where several have the name.
        at: From when on, such as 2026-11-21T22:00:00Z (UTC if no zone is given). Until then only jobs start there that
            are expected to end in time. Default: now.
        grace: How long pods may take to end from then on, such as 30m. Default: the setting grace_over_ms.
        reason: The reason; it is stored with the drain.
        force: End jobs too with pods that no controller makes anew; otherwise they run on.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        now_ms = SystemClock().now_ms()
        since_ms, grace_ms = since_of(at, now_ms), option_ms("--grace", grace) if grace else 0
        if len(reason) > REASON_MAX:
            raise CommandError(f"--reason has {len(reason)} characters, expected at most {REASON_MAX}", code=WRONG_USE)
        async with connected(options) as bus:
            state = await state_now(bus, SystemClock())
            chosen = chosen_target(name, kind, known_names(state))
            check_was_led(state)
            wish = DrainSeen(
                *chosen, since_ms=since_ms, grace_ms=grace_ms, by=caller(), reason=reason, at_ms=now_ms, force=force
            )
            await publish_drain(bus, wish)
        result = row_of(state, wish)
        if options.json:
            emit(result)
        else:
            for line in sentences(result, now_ms):
                print_result(line)

    return run(work)


def undrain(
    name: Annotated[str, Parameter(help="Name of the node, leaf switch or SuperPoD.")],
    *,
    kind: DrainKind | None = None,
    common: Common | None = None,
) -> int:
    """Return a node, leaf switch or SuperPoD to service that ``berth drain`` took out of it.

    Args:
        name: Name of the node, leaf switch or SuperPoD.
        kind: What it names: node, leaf or superpod. Only needed where drains of several have the name.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            state = await state_now(bus, SystemClock())
            chosen = chosen_drain(name, kind, list(state.table.drains.known))
            await publish_drain(bus, DrainSeen(*chosen, by=caller(), gone=True, at_ms=SystemClock().now_ms()))
        others = still_drained(state, chosen)
        if options.json:
            emit(UndrainedRow(*chosen))
        else:
            print_result(f"{_named(chosen)} accepts work again{f', apart from {others}' if others else ''}")

    return run(work)


async def publish_drain(bus: Bus, wish: DrainSeen) -> None:
    """Store a drain.

    Raises:
        TransientError: The server did not answer, or the user may not publish drains.
    """
    await bus.publish(bus.subjects.fact_drain(wish.kind, wish.name), encode(wish))


def since_of(text: str, now_ms: int) -> int:
    """Moment from which on a drain counts.

    Raises:
        CommandError: It is no time, or is over.
    """
    if not text:
        return now_ms
    try:
        when = when_of(text)
    except ValueError:
        when = None
    if when is None or when.at_ms < 0:
        raise CommandError(f"--at is {text!r}, expected a time such as 2026-11-21T22:00:00Z", code=WRONG_USE)
    if when.at_ms < now_ms:
        raise CommandError(f"--at is {text!r}, which is over; omit it to drain now", code=WRONG_USE)
    return when.at_ms


def chosen_target(name: str, kind: DrainKind | None, known: Mapping[DrainKind, Collection[str]]) -> Target:
    """The one thing that has a name.

    Args:
        name: The name.
        kind: What it is; None if the user did not say.
        known: Known names of each kind.

    Raises:
        CommandError: Nothing has the name, or several things have.
    """
    kinds = [one for one in KINDS if kind in {None, one}]
    found = [(one, name) for one in kinds if name in known[one]]
    if found:
        return _only(found)
    what = " or ".join(DRAINED[one] for one in kinds) if len(kinds) == 1 else "node, leaf switch or SuperPoD"
    near = [f"{DRAINED[one]} {other}" for one in kinds for other in near_names(name, known[one])]
    hint = f"near names: {', '.join(near[:5])}" if near else "see: berth nodes"
    raise CommandError(f"no {what} is named {name}; {hint}", code=FAILED)


def chosen_drain(name: str, kind: DrainKind | None, drained: Collection[Target]) -> Target:
    """The one drain of a name.

    Raises:
        CommandError: There is none, or there are several.
    """
    found = [(one, name) for one in KINDS if kind in {None, one} and (one, name) in drained]
    if found:
        return _only(found)
    known = listed((_named(one) for one in sorted(drained)), most=8)
    raise CommandError(
        f"no drain of {DRAINED[kind] + ' ' if kind else ''}{name}; drained: {known or 'nothing'}", code=FAILED
    )


def _only(found: list[Target]) -> Target:
    if len(found) > 1:
        kinds = " and a ".join(DRAINED[kind] for kind, _ in found)
        options = " or ".join(f"--kind {kind}" for kind, _ in found)
        raise CommandError(f"{found[0][1]} is the name of a {kinds}: say which with {options}", code=WRONG_USE)
    return found[0]


def check_was_led(state: State) -> None:
    """Check that a dispatcher has led the cell.

    Raises:
        CommandError: No dispatcher has led the cell.
    """
    if not state.fold.epoch:
        raise CommandError("drains have no effect: no dispatcher has led this cell yet", code=FAILED)


def still_drained(state: State, target: Target) -> str:
    """Nodes of a target that other drains concern, for people; empty without."""
    names = {node for row in drains_of(state) if (row.kind, row.name) != target for node in row.nodes}
    own = next((row.nodes for row in drains_of(state) if (row.kind, row.name) == target), [])
    rest = [node for node in own if node in names]
    return f"{listed(rest)}, which other drains concern" if rest else ""


def sentences(result: DrainRow, now_ms: int) -> list[str]:
    """What a drain does.

    Args:
        result: The drain.
        now_ms: The time.
    """
    nodes = f", {pluralize(len(result.nodes), 'node')}," if result.kind != "node" else ""
    begin = f"{_named((result.kind, result.name))}{nodes} accepts no new work {since_words(result.since_ms, now_ms)}"
    if result.since_ms > now_ms:
        begin += "; until then only jobs start there that are expected to end in time"
    if not result.jobs:
        return [begin, "no job is there"]
    stay = [job for job in result.jobs if job.unowned and not result.force]
    leave = [job for job in result.jobs if job not in stay]
    lines = [begin]
    if leave:
        jobs = listed(map(ranks_words, leave), most=8)
        lines.append(f"jobs there are moved then: {jobs}")
    if stay:
        jobs = listed(map(ranks_words, stay), most=8)
        lines.append(f"jobs there run on, because no controller makes their pods anew (--force ends them): {jobs}")
    return lines


def _named(target: Target) -> str:
    return f"{DRAINED[target[0]]} {target[1]}"
