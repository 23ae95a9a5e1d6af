"""``berth nodes break`` and ``berth nodes repair``: faults of simulated nodes on command."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.durations import option_ms
from berth.cli.output import FAILED, WRONG_USE, CommandError, emit, print_result
from berth.runtime.bus.port import Bus
from berth.runtime.errors import TransientError
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.simulation import BreakNode, NodeBroken

Fault: TypeAlias = Literal[
    "chip", "network", "recovering", "node", "switch", "kubelet", "plugin", "gone", "container", "relation"
]  # fmt: skip

_ASK_S: Final = 5.0
_RANGE: Final = re.compile(r"(\d{1,2})(?:-(\d{1,2}))?")
_ID_MAX: Final = 63


@Parameter(name="*")
@dataclass(frozen=True)
class Of:
    """What of several breaks.

    Attributes:
        leaf: The name is that of a leaf switch: all nodes below it break.
        pod: Pod of a fault of kind container or relation, as namespace/name. Default: the first that runs on the node.
        exit_code: Exit code of its containers. Default: 1.
    """

    leaf: Annotated[bool, Parameter(negative=())] = False
    pod: str = ""
    exit_code: int = 0


class BrokenRow(msgspec.Struct, frozen=True):
    """Broken or repaired part, as ``--json`` prints it."""

    node: str
    fault: str
    chips: list[int]
    level: str
    code: str
    lasts_ms: int
    mend: bool
    """It is repaired."""
    leaf: bool
    """The name is that of a leaf switch."""
    pod: str
    exit_code: int


def break_node(
    node: str,
    *,
    fault: Fault,
    chips: str = "",
    level: str = "",
    code: str = "",
    lasts: Annotated[str, Parameter(name="--for")] = "",
    of: Of | None = None,
    common: Common | None = None,
) -> int:
    """Break a part of a simulated node.

    Args:
        node: The node.
        fault: chip, network (of chips), recovering (chips), node, switch (A3 only), kubelet, plugin, gone (the node
            leaves the cluster), container (a pod fails) or relation (ClusterD labels a pod).
        chips: Ids of chips, such as 3 or 0,2-4.
        level: Level as the reporting agent names it, such as RestartNPU or SeparateFault. Default: that of the fault.
        code: Fault code in upper-case hex. Default: that of the fault.
        lasts: Duration, such as 30s. Default: until it is repaired.
        of: What of several breaks.
        common: Cell and form of the output.
    """

    async def work() -> None:
        what = of or Of()
        wish = BreakNode(
            node,
            fault,
            chips_of(chips),
            level,
            code,
            option_ms("--for", lasts) if lasts else 0,
            leaf=what.leaf,
            pod=what.pod,
            exit_code=what.exit_code,
        )
        await _send(common or Common(), wish)

    return run(work)


def repair_node(
    node: str,
    *,
    fault: Fault,
    chips: str = "",
    leaf: Annotated[bool, Parameter(negative=())] = False,
    common: Common | None = None,
) -> int:
    """Repair a part of a simulated node that ``berth nodes break`` broke.

    Args:
        node: The node.
        fault: The fault that was given to ``break``.
        chips: Ids of chips, such as 3 or 0,2-4. Default: all chips with the fault.
        leaf: The name is that of a leaf switch: all nodes below it are repaired.
        common: Cell and form of the output.
    """

    async def work() -> None:
        await _send(common or Common(), BreakNode(node, fault, chips_of(chips), repair=True, leaf=leaf))

    return run(work)


def chips_of(text: str) -> list[int]:
    """Ids in a text such as ``0,2-4``, ascending; empty for an empty text.

    Raises:
        CommandError: The text is invalid.
    """
    found: set[int] = set()
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _ID_MAX:
            raise CommandError(f"--chips is {text!r}, expected ids up to {_ID_MAX} such as 3 or 0,2-4", code=WRONG_USE)
        found.update(range(first, last + 1))
    return sorted(found)


async def _send(options: Common, wish: BreakNode) -> None:
    """Send the request to the simulated cluster and print the result.

    Raises:
        CommandError: The simulated cluster refuses it or does not answer.
    """
    async with connected(options) as bus:
        reason = await _asked(bus, wish)
    if reason:
        raise CommandError(reason, code=FAILED)
    if options.json:
        emit(
            BrokenRow(
                wish.node,
                wish.fault,
                wish.chips,
                wish.level,
                wish.code,
                wish.lasts_ms,
                wish.repair,
                wish.leaf,
                wish.pod,
                wish.exit_code,
            )
        )
        return
    what = f"{wish.fault}{_listed(wish.chips)}"
    lasts = f" for {wish.lasts_ms / 1000:g} s" if wish.lasts_ms else ""
    print_result(f"{wish.node}: {what} is {'repaired' if wish.repair else 'broken'}{lasts}")


async def _asked(bus: Bus, wish: BreakNode) -> str:
    """Reason for a refusal; empty on success.

    Raises:
        CommandError: No simulated cluster answers.
    """
    try:
        answer = await bus.request(bus.subjects.sim("break"), encode(wish), timeout_s=_ASK_S)
        return decode(answer, NodeBroken).reason
    except (TransientError, DecodeError) as error:
        raise CommandError(
            f"no simulated cluster answers in cell {bus.subjects.cell!r} ({error}); only its nodes can be broken"
        ) from error


def _listed(chips: Iterable[int]) -> str:
    found = ", ".join(map(str, chips))
    return f" {found}" if found else ""
