"""The commands as data: name, function and summary of each, so that the list of commands imports none of them.

Commands of extensions, such as those of ``berth.lab``, are added by entry points.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from berth.runtime.release import COMMANDS as EXTENSIONS
from berth.runtime.release import extensions


class Command(NamedTuple):
    """A command, or a group of commands with a function of its own.

    Attributes:
        name: Word on the command line.
        place: Module and function as ``module:function``; the module is below ``package``.
        summary: The first line of the function's docstring, for the list of commands.
        parts: Commands of a group.
        package: Package of the module.
    """

    name: str
    place: str
    summary: str
    parts: tuple["Command", ...] = ()
    package: str = "berth.cli"

    @property
    def path(self) -> str:
        """Module and function, with the package."""
        return f"{self.package}.{self.place}"

    def load(self) -> Callable[..., object]:
        """Import the function.

        Raises:
            ImportError: There is no such module.
            AttributeError: The module has no such function.
        """
        module, _, function = self.path.partition(":")
        loaded: Callable[..., object] = getattr(importlib.import_module(module), function)
        return loaded


GROUPS: Final = {
    "Start": ("up", "demo", "completion"),
    "Jobs": ("submit", "ask", "jobs", "wait", "explain", "cancel", "hold", "release", "priority"),
    "Cluster": ("status", "nodes", "node", "faults", "switches", "superpods", "queues", "drain", "undrain"),
    "History and planning": ("log", "usage", "record", "replay", "page", "simulate", "what-if"),
    "Maintenance": ("backup", "restore", "streams", "dead", "fsck", "repair", "check-config"),
    "Access": ("keys", "token"),
}
"""Titles of the list of commands, and the commands below each."""
COMMANDS: Final = (
    Command(
        "status",
        "cluster.status:status",
        "Show who leads, how far each service is behind, scorers, last decision, dead letters, and NATS.",
    ),
    Command(
        "submit",
        "jobs.submit:submit",
        "Send job requests and print the verdicts. Nothing is sent if any of them is invalid.",
    ),
    Command(
        "ask",
        "jobs.ask:ask_start",
        "Show when jobs of a file would be expected to start if they were submitted now; nothing is submitted.",
    ),
    Command(
        "jobs",
        "jobs.listing:jobs",
        "List jobs in the order of the queue: phase, position, pods, chips, age, and their nodes or why they wait.",
    ),
    Command(
        "wait",
        "jobs.wait:wait",
        "Wait until jobs are placed, or have finished, and report by the exit code whether they did.",
    ),
    Command("cancel", "jobs.cancel:cancel", "Cancel a job, whether it waits or runs."),
    Command(
        "hold",
        "jobs.steering:hold",
        "Hold a job that waits: it is not started until ``berth release``, and no job waits behind it.",
    ),
    Command(
        "release",
        "jobs.steering:release",
        "Release a job that is held: it has its place in the queue again, as if nobody had held it.",
    ),
    Command("priority", "jobs.steering:priority", "Give a job that waits another priority than that of its request."),
    Command(
        "nodes",
        "cluster.nodes:nodes",
        "List nodes with their chips drawn, or of a large cell how full its products, leaf switches and SuperPoDs are.",
    ),
    Command(
        "node",
        "cluster.node:node",
        "Show a node: its chips, the jobs there, faults and since when, free cpu and memory, and labels.",
    ),
    Command(
        "faults",
        "cluster.fault_groups:faults",
        "List faults of nodes and chips in groups, since when, the jobs and ranks there, and jobs that recover.",
        (
            Command(
                "approve",
                "cluster.approvals:approve",
                "Let jobs restart for faults that only one source reports, although they are many.",
            ),
        ),
    ),
    Command(
        "drain",
        "cluster.drain:drain",
        "Take a node, or all nodes of a leaf switch or SuperPoD, out of service: they accept no new work.",
    ),
    Command(
        "undrain",
        "cluster.drain:undrain",
        "Return a node, leaf switch or SuperPoD to service that ``berth drain`` took out of it.",
    ),
    Command(
        "switches",
        "cluster.switches:switches",
        "List leaf switches (ToR): their nodes drawn, the number of free nodes, their state, and the jobs there.",
    ),
    Command(
        "superpods",
        "cluster.superpods:superpods",
        "List physical SuperPoDs: their nodes drawn with the blocks on them, the number of free nodes, and the jobs"
        " there.",
    ),
    Command(
        "queues",
        "queues.show:show_queues",
        "Show queues of a cell, or of a file, as a tree: entitlement, limit, what they hold and borrow, and who waits.",
        (
            Command(
                "list",
                "queues.show:list_queues",
                "List the queues of a cell as a tree: entitlement, limit, what they hold and borrow, and who waits.",
            ),
            Command(
                "show",
                "queues.show:show_queues",
                "Show queues of a cell, or of a file, as a tree: entitlement, limit, what they hold and borrow, and who waits.",
            ),
            Command(
                "check",
                "queues.check:check_queues",
                "Check queues of a cell, or of a file: what is wrong with them, and which a namespace may use.",
            ),
            Command(
                "apply",
                "queues.declare:apply",
                "Declare the queues of a file in a cell; other queues stay as they are. Nothing is changed if any is"
                " wrong.",
            ),
            Command(
                "delete",
                "queues.declare:delete",
                "Declare queues of a cell no longer: what runs there runs on, charged to root; what waits there starts"
                " in none.",
            ),
            Command("open", "queues.declare:open_", "Open queues of a cell that are closed."),
            Command(
                "close",
                "queues.declare:close",
                "Close queues of a cell: no job starts there or in queues below; what runs there runs on.",
            ),
        ),
    ),
    Command(
        "explain",
        "jobs.explain:explain_job",
        "Explain a decision: request, known state, next-best nodes, or why a job waits and what would help.",
    ),
    Command(
        "record",
        "recordings.record:record_cell",
        "Write the history of a cell to a file: its facts and its decisions.",
    ),
    Command(
        "log",
        "recordings.log:log",
        "Print the facts and decisions of a recording, or of a live cell: of the last hour, or as they arrive.",
    ),
    Command(
        "usage",
        "cluster.usage:usage",
        "Add up chip-hours from the ledger: used, idle, and lost to faults and evictions.",
    ),
    Command(
        "replay",
        "recordings.replay:replay",
        "Repeat the decisions of a recording, from its facts, times and settings alone, and compare them.",
    ),
    Command(
        "page",
        "recordings.page:page",
        "Write recordings as one HTML file: the map of the cell, queue, jobs and faults over time, with a slider.",
    ),
    Command(
        "backup",
        "recordings.backup:backup_cell",
        "Write everything of a cell that cannot be made again to a file or an object store, and check it.",
    ),
    Command(
        "restore",
        "recordings.backup:restore_cell",
        "Make the streams of a cell anew from a backup. Its services must not run.",
    ),
    Command(
        "streams",
        "cluster.streams:list_streams",
        "List the streams of a cell, and which are missing.",
        (
            Command(
                "apply",
                "cluster.streams:apply",
                "Make the streams of a cell, and correct their settings: at its installation, and with a new release.",
            ),
            Command("list", "cluster.streams:list_streams", "List the streams of a cell, and which are missing."),
        ),
    ),
    Command(
        "keys",
        "keys.key_commands:list_",
        "List the users of a cell's NATS, and which credentials have expired or are revoked.",
        (
            Command(
                "init",
                "keys.key_commands:init",
                "Make keys for a cell in a new folder: an operator, an account, and users of all services and of people.",
            ),
            Command("add", "keys.key_commands:add", "Add a user, and write its credentials."),
            Command(
                "renew",
                "keys.key_commands:renew",
                "Make new keys for users that stay what they are; the old ones count until the servers read access.conf"
                " again.",
            ),
            Command(
                "revoke",
                "keys.key_commands:revoke",
                "Revoke a user: the servers let it in no more once they have read access.conf again.",
            ),
            Command(
                "marks",
                "keys.key_commands:marks",
                "Make the key by which binder and inventory know the pods that Berth bound.",
            ),
            Command(
                "list",
                "keys.key_commands:list_",
                "List the users of a cell's NATS, and which credentials have expired or are revoked.",
            ),
        ),
    ),
    Command(
        "token",
        "keys.token_command:token",
        "Make a token for a client of the gateway, and print it once with the lines for the gateway's settings.",
    ),
    Command(
        "dead",
        "cluster.dead:list_dead",
        "List dead letters: messages that can never be handled, the newest first, with the reason.",
        (
            Command(
                "list",
                "cluster.dead:list_dead",
                "List dead letters: messages that can never be handled, the newest first, with the reason.",
            ),
            Command(
                "show",
                "cluster.dead:show_dead",
                "Show a dead letter: its message decoded as far as possible, with headers, reason and times.",
            ),
            Command(
                "replay",
                "cluster.dead:replay_dead",
                "Publish requests of dead letters again on their subjects, each once. Nothing is sent if any of them is"
                " refused.",
            ),
            Command(
                "purge",
                "cluster.dead:purge_dead",
                "Remove the content of dead letters, by name, age, subject or reason. It cannot be undone.",
            ),
        ),
    ),
    Command(
        "fsck",
        "cluster.fsck:fsck",
        "Check ledger, snapshots, facts and statuses, and with --cluster the pods; nothing is changed.",
    ),
    Command(
        "repair",
        "cluster.repair:repair_ledger",
        "Let the readers of the ledger go on where a message stops them, or was deleted; correct snapshots and statuses.",
    ),
    Command(
        "simulate",
        "simulation.simulate:simulate",
        "Simulate a trace of jobs on a cluster, with the scheduler core of a real cell.",
    ),
    Command(
        "what-if",
        "simulation.what_if:what_if",
        "Compare three courses of events: as recorded, simulated without the change, and simulated with it.",
    ),
    Command(
        "check-config",
        "check_config:check_config",
        "Print the effective settings of a service from a file, the environment and the defaults.",
    ),
    Command(
        "completion",
        "completion:completion",
        "Print a script that completes commands and options in bash, zsh or fish.",
    ),
)
"""Commands of every installation."""
OF_LAB: Final = frozenset({"up", "demo", "nodes break", "nodes repair"})
"""Commands of the extra ``lab``; their names are known here to say what is missing where it is not installed."""


def all_commands() -> tuple[Command, ...]:
    """Commands of this installation: those of extensions after its own, and such as ``nodes break`` in their groups."""
    found = {command.name: command for command in COMMANDS}
    for added in extensions(EXTENSIONS).values():
        for command in added if isinstance(added, tuple) else ():
            group, _, name = command.name.rpartition(" ")
            if group:
                parts = (*found[group].parts, command._replace(name=name))
                found[group] = found[group]._replace(parts=parts)
            else:
                found[name] = command
    return tuple(found.values())


def needs_extensions(tokens: Sequence[str]) -> bool:
    """Whether a command line is of an extension, or asks for help that lists its commands."""
    is_own = bool(tokens) and tokens[0] in {command.name for command in COMMANDS}
    return not is_own or " ".join(tokens[:2]) in OF_LAB or tokens[1:2] in (["--help"], ["-h"])


def missing(commands: Sequence[Command], tokens: Sequence[str]) -> str:
    """Command of the extra ``lab`` that a command line asks for and ``commands`` lack; empty if there is none."""
    found = {command.name for command in commands}
    found.update(f"{command.name} {part.name}" for command in commands for part in command.parts)
    return next((name for name in (" ".join(tokens[:1]), " ".join(tokens[:2])) if name in OF_LAB - found), "")
