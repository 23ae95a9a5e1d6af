"""``berth nodes``: nodes with their chips drawn, or how full a large cell is."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.cluster.cell_lists import CellLists, lists_of
from berth.cli.cluster.drain_rows import show_drains
from berth.cli.cluster.node_map import show_map
from berth.cli.cluster.node_rows import NodeRow, free_chips, troubles_of
from berth.cli.cluster.node_summary import show_use
from berth.cli.output import WRONG_USE, CommandError, emit, near_names, print_progress
from berth.cli.selection import conditions_on, sorted_by
from berth.core.text import pluralize
from berth.runtime.clock import SystemClock

_NONE: Final[tuple[str, ...]] = ()
_DRAWN_MAX: Final = 50
"""Of more nodes a summary is shown, unless some of them are asked for."""
_KEYS: Final[dict[str, Callable[[NodeRow], Any]]] = {
    "name": lambda node: node.name,
    "product": lambda node: node.product,
    "leaf": lambda node: node.leaf,
    "superpod": lambda node: node.superpod,
    "free": free_chips,
    "used": lambda node: len(node.used),
    "chips": lambda node: node.chips,
}


def nodes(
    *names: str,
    filters: Annotated[tuple[str, ...], Parameter(name=["--filter", "-f"], negative=(), show_default=False)] = _NONE,
    sort: Annotated[str, Parameter(allow_leading_hyphen=True)] = "product,name",
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = _DRAWN_MAX,
    common: Common | None = None,
) -> int:
    """List nodes with their chips drawn, or of a large cell how full its products, leaf switches and SuperPoDs are.

    Args:
        names: Only these nodes.
        filters: Only nodes with this value in a field: state!=ok, leaf=leaf-05, product=module910bx8, superpod=3,
            name=a2-*. Several conditions must all hold. A state is ok, sub-healthy, no-new-work, evict, unhealthy (some
            chips), not-ready, cordoned or drained.
        sort: Order: name, product, leaf, superpod, free, used or chips, several separated by commas; - before a name
            reverses it.
        limit: Most nodes that are drawn; 0 for all.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        now_ms = SystemClock().now_ms()
        fields = {**_FIELDS, "state": lambda node: states_of(node, now_ms)}
        conditions = conditions_on(filters, fields)
        sorted_by((), sort, _KEYS)
        async with connected(options) as bus:
            if options.json:
                from berth.cli.cluster.folded_lists import FoldedLists  # noqa: PLC0415  # imports numpy

                lists: CellLists = await FoldedLists.read(bus)
            else:
                lists = await lists_of(bus)
                is_whole = not names and not filters and limit == _DRAWN_MAX
                if is_whole and sort == "product,name" and await lists.size() > _DRAWN_MAX:
                    show_use(await lists.use())
                    return
            known = await lists.nodes()
            chosen = [node for node in _named(known, names) if all(one.holds(node) for one in conditions)]
            chosen = sorted_by(chosen, sort, _KEYS)
            if options.json:
                emit(chosen)
                return
            drawn = chosen[:limit] if limit else chosen
            show_map(await lists.with_reasons(drawn), now_ms)
            show_drains(await lists.drains(), now_ms)
        if len(drawn) < len(chosen):
            print_progress(f"{pluralize(len(chosen) - len(drawn), 'node')} more; list all with -n 0")

    return run(work)


def states_of(node: NodeRow, now_ms: int) -> list[str]:
    """States of a node, as conditions name them."""
    found = [trouble.replace(" ", "-") for trouble in troubles_of(node, now_ms)]
    found += ["unhealthy"] if node.unhealthy else []
    return found or ["ok"]


_FIELDS: Final[dict[str, Callable[[NodeRow], Sequence[str]]]] = {
    "state": lambda _: [],
    "name": lambda node: [node.name],
    "product": lambda node: [node.product],
    "leaf": lambda node: [node.leaf],
    "superpod": lambda node: [node.superpod],
    "resource": lambda node: [node.resource],
    "domain": lambda node: [node.domain],
}


def _named(known: list[NodeRow], names: Sequence[str]) -> list[NodeRow]:
    """Nodes with these names; all without any.

    Raises:
        CommandError: There is no such node.
    """
    if not names:
        return known
    wanted = dict.fromkeys(names)
    unknown = sorted(wanted.keys() - {node.name for node in known})
    if unknown:
        raise CommandError(unknown_node(unknown[0], [node.name for node in known]), code=WRONG_USE)
    return [node for node in known if node.name in wanted]


def unknown_node(name: str, known: list[str]) -> str:
    """Error about a name that no node has."""
    near = near_names(name, known)
    hint = f"near names: {', '.join(near)}" if near else f"{pluralize(len(known), 'node')} known, see: berth nodes"
    return f"no node is named {name}; {hint}"
