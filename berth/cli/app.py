"""The ``berth`` command with its subcommands, and its exit codes.

0: success. 1: failure or refusal. 2: wrong usage or invalid setting.
"""

import sys
from typing import Final, NoReturn

from cyclopts import App, CycloptsError

from berth.cli.check_config import check_config
from berth.cli.cluster.approvals import approve
from berth.cli.cluster.drain import drain, undrain
from berth.cli.cluster.fault_list import faults
from berth.cli.cluster.faults import break_node, repair_node
from berth.cli.cluster.fsck import fsck
from berth.cli.cluster.nodes import nodes
from berth.cli.cluster.repair import repair_ledger
from berth.cli.cluster.superpods import superpods
from berth.cli.cluster.switches import switches
from berth.cli.jobs.explain import explain_job
from berth.cli.jobs.listing import cancel, jobs
from berth.cli.jobs.submit import submit
from berth.cli.local.demo import demo
from berth.cli.local.up import up
from berth.cli.output import WRONG_USE, complain, progress_console, results
from berth.cli.recordings.backup import backup_cell, restore_cell
from berth.cli.recordings.record import log, record_cell
from berth.cli.recordings.replay import replay
from berth.cli.simulation.simulate import simulate
from berth.cli.simulation.what_if import what_if
from berth.formats.utf8 import UTF8_TEXT, is_utf8
from berth.runtime.release import release

APP: Final = App(
    name="berth",
    help="Decide on which nodes and chips NPU jobs run, and report the reasons.",
    version=release,
    result_action="return_value",
)
APP.command(up)
APP.command(demo)
APP.command(submit)
APP.command(jobs)
APP.command(cancel)
NODES: Final = App(name="nodes")
NODES.default(nodes)
NODES.command(break_node, name="break")
NODES.command(repair_node, name="repair")
NODES.command(repair_node, name="mend", show=False)  # the name until 0.4
APP.command(NODES)
FAULTS: Final = App(name="faults")
FAULTS.default(faults)
FAULTS.command(approve)
APP.command(FAULTS)
APP.command(drain)
APP.command(undrain)
APP.command(switches)
APP.command(superpods)
APP.command(explain_job, name="explain")
APP.command(record_cell, name="record")
APP.command(log)
APP.command(replay)
APP.command(backup_cell, name="backup")
APP.command(restore_cell, name="restore")
APP.command(fsck)
APP.command(repair_ledger, name="repair")
APP.command(simulate)
APP.command(what_if, name="what-if")
APP.command(check_config)


def call(tokens: list[str]) -> int:
    """Exit code of the command line ``tokens``."""
    for number, token in enumerate(tokens, start=1):
        if not is_utf8(token):  # Python decodes invalid UTF-8 on the command line into halves of surrogate pairs
            complain([f"argument {number} is {token!r}, expected {UTF8_TEXT}: is it UTF-8?"])
            return WRONG_USE
    try:
        code = APP(
            tokens,
            exit_on_error=False,
            print_error=False,
            console=results(),
            error_console=progress_console(),
            backend="asyncio",
        )
    except CycloptsError as error:
        complain(str(error).splitlines())
        return WRONG_USE
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(call(sys.argv[1:]))
