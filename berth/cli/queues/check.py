"""``berth queues check``: what is wrong with queues, who may use which, and how many jobs may end for others."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import FAILED, OK, WRONG_USE, CommandError, complain, emit, print_result, warn
from berth.cli.queue_files import QueueFile, read_file
from berth.cli.queues.cell_queues import queues_of
from berth.core.queues.tree import State, Tree
from berth.core.queues.validity import warnings_of
from berth.core.scheduling.rules.search_ground import may_end
from berth.core.state.cell import State as CellState
from berth.core.text import pluralize
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.queues.queue import DEFAULT


class MayEnd(msgspec.Struct, frozen=True):
    """Jobs of a queue that may end for others."""

    queue: str
    jobs: int
    """With ``decisions.preempt`` = 2."""
    chips: int
    """Chips that they hold."""
    declared_jobs: int
    """Those of them that declare it: with ``decisions.preempt`` = 1."""
    declared_chips: int


class Checked(msgspec.Struct, frozen=True):
    """Result of ``berth queues check --json``."""

    queues: int
    """Queues that are declared."""
    faults: list[str]
    """What makes queues not valid, and what of the file cannot be read."""
    warnings: list[str]
    namespace: str = ""
    usable: list[str] = []
    """Queues that jobs of the namespace may name."""
    closed: list[str] = []
    """Those of them that let no job in now."""
    preempt: int = 0
    """``decisions.preempt`` of the cell."""
    may_end: list[MayEnd] = []
    """Of the cell, by queue, whatever it is; queues without such jobs are missing. Of a file there are none."""


def check_queues(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    namespace: str = "",
    /,
    *,
    common: Common | None = None,
) -> int:
    """Check queues of a cell, or of a file: what is wrong with them, and which a namespace may use.

    Of a cell it also says how many jobs may end for others, with preemption. Nothing is changed.

    Args:
        file: Queues of Volcano or of Berth in YAML or JSON, such as from kubectl get queues -o yaml; - for stdin. One
            word without a dot and a slash is a namespace: the queues are those of the cell then, as without any word.
        namespace: Say which queues jobs of this namespace may use.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        preempt, ending = 0, list[MayEnd]()
        if is_file(file):
            found, about = read_file(file), namespace
        elif namespace:
            raise CommandError(
                f"{file} is no name of a file that has a dot or a slash; write ./{file}, or one namespace alone",
                code=WRONG_USE,
            )
        else:
            async with connected(options) as bus:
                state = await state_now(bus, SystemClock())
            found, about = _of_cell(state), file
            preempt, ending = state.fold.settings.preempt, _may_end(state)
        usable = _usable(found.tree, about) if about else []
        checked = Checked(
            queues=len(found.tree.declared),
            faults=found.faults,
            warnings=_warnings(found.tree, found.skipped),
            namespace=about,
            usable=usable,
            closed=[name for name in usable if found.tree.states[name] is not State.OPEN],
            preempt=preempt,
            may_end=ending,
        )
        if options.json:
            emit(checked)
        else:
            _show(checked, found.tree)
        return FAILED if checked.faults else OK

    return run(work)


def is_file(word: str) -> bool:
    """Whether a word names a file, or stdin; names of namespaces have no dot and no slash."""
    return word == "-" or "." in word or "/" in word


def _of_cell(state: CellState) -> QueueFile:
    tree = queues_of(state).tree
    return QueueFile(tree, [f"queue {name} is not valid: {reason}" for name, reason in tree.broken.items()], [])


def _may_end(state: CellState) -> list[MayEnd]:
    found: dict[str, MayEnd] = {}
    for one in may_end(state):
        queue, is_declared = one.counted.queue or DEFAULT, one.declares_preemptable
        known = found.get(queue, MayEnd(queue, 0, 0, 0, 0))
        found[queue] = MayEnd(
            queue,
            known.jobs + 1,
            known.chips + one.chips,
            known.declared_jobs + is_declared,
            known.declared_chips + one.chips * is_declared,
        )
    return [found[queue] for queue in sorted(found)]


def _warnings(tree: Tree, skipped: list[str]) -> list[str]:
    found = [f"{what} is no queue; it is skipped" for what in skipped]
    return found + [f"queue {name}: {text}" for name, queue in tree.queues.items() for text in warnings_of(queue)]


def _usable(tree: Tree, namespace: str) -> list[str]:
    allowed = {name: tree.namespaces(name) for name in tree.leaves()}
    return [name for name, namespaces in allowed.items() if namespaces is None or namespace in namespaces]


def _show(checked: Checked, tree: Tree) -> None:
    complain(checked.faults)
    warn(checked.warnings)
    if checked.namespace:
        names = [f"{name} (closed)" if name in checked.closed else name for name in checked.usable]
        print_result(f"jobs of namespace {checked.namespace} may use: {', '.join(names) or 'no queue'}")
    broken = len(tree.declared & tree.broken.keys())
    words = "all are valid" if not broken else f"{broken:,} of them not valid; all others work on"
    print_result(f"{pluralize(checked.queues, 'queue')}, {words}")
    for one in checked.may_end:
        print_result(
            f"queue {one.queue}: {_jobs(one.jobs, one.chips)} may end for others with decisions.preempt = 2,"
            f" {_jobs(one.declared_jobs, one.declared_chips)} with 1; it is {checked.preempt}"
        )


def _jobs(jobs: int, chips: int) -> str:
    return f"{pluralize(jobs, 'job')} ({pluralize(chips, 'chip')})"
