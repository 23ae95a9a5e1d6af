"""``berth switches``: the leaf switches (ToR), with their nodes drawn, their state, and the jobs below them."""

from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import (
    CommandError,
    emit,
    listed,
    near_names,
    print_legend,
    print_result,
    print_table,
)
from berth.cli.tables import Span, Table, shows_unicode
from berth.core.cluster.node_packing import SWITCHES
from berth.core.explain.node_snapshot import jobs_of
from berth.core.state.cell import State
from berth.core.text import pluralize
from berth.core.topologies.layouts import LeafUser
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, NOT_NORMAL, STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.core.topologies.switches.planner import switch_rules
from berth.core.topologies.switches.rounds.explanation import leaf_users
from berth.core.topologies.switches.text import STATES, UNKNOWN, bits_words
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.facts import NodeHealth

Kind = Literal["free", "part", "used", "unusable", "none"]
_PLAIN: Final[dict[Kind, str]] = {"free": ".", "part": "+", "used": "#", "unusable": "x", "none": "_"}
_DRAWN: Final[dict[Kind, str]] = _PLAIN | {"free": "□", "part": "◧", "used": "■", "none": "·"}
_STYLES: Final[dict[Kind, str]] = {"free": "green", "part": "cyan", "used": "blue", "unusable": "red", "none": "dim"}
_WORDS: Final[dict[Kind, str]] = {
    "free": "all chips free",
    "part": "some chips free",
    "used": "no chip free",
    "unusable": "takes no new work",
    "none": "no node known",
}
_JOBS_SHOWN: Final = 4


class PlaceRow(msgspec.Struct, frozen=True):
    """A place below a leaf, in the order of its list."""

    node: str
    """Empty if no node is known."""
    position: int
    kind: Kind


class LeafRow(msgspec.Struct, frozen=True):
    """A leaf switch as ``--json`` prints it."""

    name: str
    free: int
    """Nodes that accept new work and whose chips are all free."""
    nodes: int
    """Known nodes."""
    state: str
    """2.0: ``free``, ``shared`` or ``exclusive``; empty if the policy has no states."""
    healthy: bool
    cross: bool
    """A job is on this leaf and on another one."""
    only_common: bool
    """All jobs on this leaf are common jobs."""
    words: str
    """State of the leaf for the policy, as text."""
    jobs: list[LeafUser]
    places: list[PlaceRow]


class SwitchesShown(msgspec.Struct, frozen=True):
    """Result of ``berth switches --json``."""

    policy: str
    """``1.0``, ``2.0`` or ``single-layer``."""
    shared_max: int
    """2.0: maximum number of shared leaves of a job; otherwise 0."""
    places: int
    """Nodes below a whole leaf."""
    total: int
    """Known leaves, whether shown or not."""
    reason: str
    """Why the newest topology is not in force; empty if it is."""
    leaves: list[LeafRow]


def switches_of(state: State) -> SwitchesShown:
    """All leaves in the order of their source."""
    index = leaf_index_of(state.indexes)
    leaves = index.leaves
    rules = switch_rules(state.fold.settings, is_single_layer=leaves.is_single_layer)
    users = leaf_users(leaves, jobs_of(state))
    topology = state.topologies.get(SWITCHES)
    bits = index.occupancy.bits().tolist()
    return SwitchesShown(
        policy=rules.policy,
        shared_max=rules.shared_max if rules.policy == "2.0" else 0,
        places=leaves.places,
        total=len(leaves),
        reason=topology.reason if topology is not None else "",
        leaves=[
            _leaf(state, leaves, leaf, bits[leaf], users.get(leaf, []), rules.policy) for leaf in range(len(leaves))
        ],
    )


def _leaf(state: State, leaves: LeafTable, leaf: int, bits: int, jobs: list[LeafUser], policy: str) -> LeafRow:
    at = leaf * leaves.width
    places = [
        PlaceRow(
            leaves.node_names[at + place],
            int(leaves.slices[leaf, place]),
            kind_of(state, leaves.node_names[at + place]),
        )
        for place in range(leaves.width)
        if leaves.listed[leaf, place]
    ]
    has_states = policy == "2.0"
    return LeafRow(
        name=leaves.names[leaf],
        free=sum(place.kind == "free" for place in places),
        nodes=sum(place.kind != "none" for place in places),
        state=STATES[bits & STATE] if has_states else "",
        healthy=not (has_states and bits & UNHEALTHY),
        cross=bool(bits & CROSS),
        only_common=not bits & NOT_NORMAL,
        words=bits_words(bits, policy),
        jobs=jobs,
        places=places,
    )


def kind_of(state: State, node: str) -> Kind:
    """Kind of a place: the state of its node, or none."""
    table = state.table
    row = table.row_of.get(node, -1) if node else -1
    if row < 0 or not table.present[row]:
        return "none"
    key = table.classes[int(table.node_class[row])]
    if not key.ready or key.cordoned or table.level[row] >= NodeHealth.NO_NEW_WORK:
        return "unusable"
    free = int(table.free[row])
    if not free:
        return "used"
    return "free" if free == int(table.chips[row]) else "part"


def drawing(leaf: LeafRow, glyphs: dict[Kind, str]) -> list[Span]:
    """One glyph per place."""
    return [Span(glyphs[place.kind], _STYLES[place.kind]) for place in leaf.places]


def table_of(shown: SwitchesShown, glyphs: dict[Kind, str]) -> Table:
    """The leaves as a table with their nodes drawn."""
    table = Table("LEAF", "NODES", "FREE", "KNOWN", "STATE", "JOBS")
    for leaf in shown.leaves:
        table.add_row(
            leaf.name,
            drawing(leaf, glyphs),
            f"{leaf.free:,}",
            f"{leaf.nodes:,}/{shown.places:,}",
            leaf.words,
            listed([job.words() for job in leaf.jobs], _JOBS_SHOWN),
        )
    return table


def heading(shown: SwitchesShown) -> str:
    """Policy, number of leaves, and places per leaf."""
    policy = "of a single layer" if shown.policy == "single-layer" else shown.policy
    shared = f", at most {pluralize(shown.shared_max, 'shared leaf')} a job" if shown.shared_max else ""
    return f"Switch affinity {policy}{shared}; {pluralize(shown.total, 'leaf')} of {pluralize(shown.places, 'place')}."


def show(shown: SwitchesShown) -> None:
    """Print the leaves and the legend."""
    if not shown.total:
        print_result(f"no leaf is known: {shown.reason}" if shown.reason else UNKNOWN)
        return
    print_result(heading(shown))
    if shown.reason:
        print_result(f"The previous topology remains in force: {shown.reason}")
    glyphs = _DRAWN if shows_unicode() else _PLAIN
    print_table(table_of(shown, glyphs))
    print_legend([Span(glyphs[kind], _STYLES[kind]), Span(f" {words}")] for kind, words in _WORDS.items())


def only(shown: SwitchesShown, leaf: str | None) -> SwitchesShown:
    """The same with one leaf, or with all if None is given.

    Raises:
        CommandError: No leaf has the name; the error lists similar names.
    """
    if leaf is None:
        return shown
    found = [row for row in shown.leaves if row.name == leaf]
    if not found:
        near = near_names(leaf, [row.name for row in shown.leaves])
        hint = f"near names: {', '.join(near)}" if near else f"{pluralize(shown.total, 'leaf')} known"
        raise CommandError(f"no leaf is named {leaf}; {hint}")
    return msgspec.structs.replace(shown, leaves=found)


def switches(*, leaf: Annotated[str | None, Parameter(name="--leaf")] = None, common: Common | None = None) -> int:
    """List leaf switches (ToR): their nodes drawn, the number of free nodes, their state, and the jobs there.

    Args:
        leaf: Only the leaf of this name.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            found = only(switches_of(await state_now(bus, SystemClock())), leaf)
        if options.json:
            emit(found)
        else:
            show(found)

    return run(work)
