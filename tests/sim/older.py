"""An older release reads the streams of a simulated cell, and this one reads what the older writes.

``python -m tests.sim.older --seeds 0-9`` lives through seeds with settings that are safe for a rollback: no chain, no
recoveries. Sources of the older release come from the history of the tree; they run in this environment, because both
lock the same versions (:func:`see_same_lock`). Both fold the same messages of FACTS and LEDGER, and read the statuses;
the older one writes a snapshot of what it folded, and this release begins at it.
"""

import argparse
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from berth.core.state.cell import State
from berth.schemas.envelope import decode
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName
from tests.sim.errors import Failure
from tests.sim.run import live
from tests.sim.story import Story
from tests.sim.world import World
from tests.support.compiled_files import COMPILED_FILES

LAST_0_4: Final = "a93f2483"
"""Last commit of release 0.4."""
ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("berth", "schemas", "services", "requirements.lock")
READER: Final = """
import sys
import msgspec
try:
    from berth.core.state.cell import State
    from berth.schemas.envelope import decode
    from berth.schemas.status import JobStatus
except ImportError:
    from berth.core.state import State
    from schemas.envelope import decode
    from schemas.status import JobStatus

facts, records, statuses = msgspec.msgpack.decode(sys.stdin.buffer.read())
state = State(keeps=True)
unread = 0
facts.reverse()
for sequence, data, facts_seq in records:
    while facts and facts[-1][1] <= facts_seq:
        subject, number, body = facts.pop()
        found = state.apply_fact(subject, number, body)
        unread += bool(getattr(found, "error", found if isinstance(found, str) else ""))
    state.apply_record(sequence, data)
fold = state.fold


def place(one):
    names = [] if one is None else one.names()
    return names, [] if one is None else list(one.chips)


told = {
    "head": fold.head,
    "epoch": fold.epoch,
    "rounds": fold.rounds,
    "holdings": sorted((h.name, h.uid, h.attempt, place(h.placement), h.ending) for h in fold.holdings.values()),
    "gangs": sorted((g.uid, g.phase, g.attempt) for g in fold.gangs.values()),
    "jobs": sorted((*key, job.uid, job.state, job.intake_seq) for key, job in state.jobs.items()),
    "statuses": sorted(
        (s.namespace, s.name, s.uid, s.phase, s.attempt, s.refusal.code if s.refusal else "", place(s.placement))
        for s in (decode(body, JobStatus) for body in statuses)
    ),
}
sys.stdout.buffer.write(msgspec.msgpack.encode((told, unread, state.dump())))
"""
"""What reads, in either release."""


class Streams(msgspec.Struct):
    """What a cell stored.

    Attributes:
        facts: Subject, sequence and bytes.
        records: Sequence, bytes, and the last fact that it knew.
        statuses: The newest of each job.
    """

    facts: list[tuple[str, int, bytes]] = []
    records: list[tuple[int, bytes, int]] = []
    statuses: list[bytes] = []


def streams_of(seed: int) -> Streams:
    """What the cell of a seed stores with settings that are safe for a rollback.

    Raises:
        Failure: The seed fails.
    """
    found = Streams()

    def take(world: World) -> None:
        observer = world.observer
        found.facts = [(fact.subject, fact.sequence, fact.data) for fact in observer.facts]
        state = State()
        for record in observer.records:
            link = state.fold.link(record.sequence, record.data)
            found.records.append((record.sequence, record.data, link.facts_seq))
            state.apply_link(link)
        stream = world.cell.server.streams[world.user.subjects.stream(StreamName.STATUS)]
        found.statuses = [stored.data for stored in stream.messages.values()]

    lived = live(seed, change=as_before, on_end=take)
    if lived.kind:
        raise Failure(lived.kind, lived.details)
    return found


def as_before(story: Story) -> Story:
    """The story in a cell whose streams the older release reads."""
    settings = story.settings
    decisions = {**settings.decisions, "chain": 0}
    return msgspec.structs.replace(
        story, settings=msgspec.structs.replace(settings, decisions=decisions, faults={}, sync="always")
    )


class Older:
    """The sources of an older release in a folder of their own.

    Args:
        folder: Where to put them.
        revision: Commit of the tree.

    Raises:
        RuntimeError: The history of the tree does not have it, or it locks other versions.
    """

    def __init__(self, folder: Path, revision: str = LAST_0_4) -> None:
        self.folder = folder
        done = subprocess.run(  # noqa: S603  # our own arguments
            ["git", "archive", "--format=tar", revision, *_FOLDERS],  # noqa: S607  # the one of the path
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{revision} is not in the history of the tree: {done.stderr.decode()[:300]}")
        with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        see_same_lock(folder / "requirements.lock", ROOT / "requirements.lock")

    def read(self, streams: Streams) -> tuple[dict[str, Any], int, bytes]:
        """What it makes of streams: the summary, how many facts it cannot read, and its snapshot."""
        return _read(self.folder, streams)


def see_same_lock(older: Path, newer: Path) -> None:
    """See that all that an older release locks is here in the same version.

    Raises:
        RuntimeError: Something is not.
    """
    before, now = (
        {line.split(" ")[0] for line in path.read_text("utf-8").splitlines() if "==" in line} for path in (older, newer)
    )
    if before - now:
        raise RuntimeError(f"the older release needs an environment of its own: {sorted(before - now)}")


def _read(folder: Path, streams: Streams) -> tuple[dict[str, Any], int, bytes]:
    done = subprocess.run(  # noqa: S603  # our own interpreter and text
        [sys.executable, "-c", READER],
        cwd=folder,
        input=msgspec.msgpack.encode((streams.facts, streams.records, streams.statuses)),
        capture_output=True,
        check=False,
        env={**COMPILED_FILES, "PYTHONPATH": str(folder)},
    )
    if done.returncode:
        raise Failure("a release does not read the streams", done.stderr.decode()[-2000:])
    told, unread, snapshot = msgspec.msgpack.decode(done.stdout)
    return told, unread, snapshot


def see_both_read(older: Older, seed: int) -> dict[str, int]:
    """Both releases read the streams of a seed alike, and this one reads the snapshot of the older.

    Returns:
        Figures.

    Raises:
        Failure: They do not.
    """
    streams = streams_of(seed)
    theirs, unread, snapshot = older.read(streams)
    ours, none, _ = _read(ROOT, streams)
    if none:
        raise Failure("facts of this release cannot be read", str(none))
    for name, mine in ours.items():
        if theirs[name] != mine:
            raise Failure(f"an older release reads other {name}", f"{theirs[name]} instead of {mine}"[:2000])
    state = State(keeps=True)
    state.load(decode(snapshot, SnapshotBody))
    found = sorted((one.name, one.uid, one.attempt) for one in state.fold.holdings.values())
    wanted = sorted((name, uid, attempt) for name, uid, attempt, *_ in ours["holdings"])
    if (state.fold.head, found) != (ours["head"], wanted):
        raise Failure("the snapshot of an older release is read otherwise", f"{found} instead of {wanted}"[:2000])
    return {
        "records": len(streams.records),
        "facts": len(streams.facts),
        "statuses": len(streams.statuses),
        "facts that the older cannot read": unread,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.older", description="An older release reads the streams."
    )
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        older = Older(Path(folder))
        for seed in range(options.seeds):
            try:
                figures = see_both_read(older, seed)
            except Failure as failure:
                sys.stdout.write(f"seed {seed}: {failure}\n")
                return 1
            sys.stdout.write(f"seed {seed}: {', '.join(f'{number} {name}' for name, number in figures.items())}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
