"""Cells in memory whose streams a test may damage, and their check."""

from typing import Final

from berth.runtime.fsck.cell_check import CellCheck, check_cell
from berth.runtime.kube.port import Api
from berth.schemas.envelope import encode
from berth.schemas.intake import JobRequest
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeStream

GARBAGE: Final = b"\xff no message"


async def grown(*names: str) -> Cell:
    """A cell in which jobs were placed one after the other, with a snapshot after each; it goes on."""
    cell = await Cell().open()
    await cell.nodes([a_node("a"), a_node("b")])
    for name in names:
        await placed(cell, a_job(name, chips=2))
        await cell.dispatcher.snapshots.write()
    return cell


async def at_rest() -> Cell:
    """A cell with one placed job, and without a dispatcher by now."""
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await placed(cell, a_job("job", chips=4))
    await cell.dispatcher.stop()
    return cell


async def placed(cell: Cell, job: JobRequest) -> None:
    await cell.submit(job)
    await cell.turns(3)


def stream(cell: Cell, name: StreamName) -> FakeStream:
    return cell.server.stream(cell.user.subjects.stream(name))


def change(cell: Cell, name: StreamName, sequence: int, data: bytes) -> None:
    """Change a message on the disk."""
    messages = stream(cell, name).messages
    messages[sequence] = messages[sequence]._replace(data=data)


async def checked(cell: Cell, api: Api | None = None) -> CellCheck:
    async def wait() -> None:
        cell.clock.advance(1)

    return await check_cell(cell.user, cell.clock, api=api, wait=wait)


def heads(cell: Cell) -> list[int]:
    """Records of the snapshots."""
    subjects = [one.subject for one in stream(cell, StreamName.SNAPSHOT).messages.values()]
    return sorted(int(subject.split(".")[-2]) for subject in subjects if subject.endswith(".end"))


def copy_snapshot(source: Cell, target: Cell, at: int) -> None:
    """Put the snapshot of one cell where another has its own."""
    ours = stream(target, StreamName.SNAPSHOT)
    ours.purge(None, target.user.subjects.snapshot_all(at))
    for stored in list(stream(source, StreamName.SNAPSHOT).messages.values()):
        if f".snapshot.{at}." in stored.subject:
            target.server.store(stored.subject, stored.data, None, None)


async def told(cell: Cell, name: str) -> JobStatus:
    status = await cell.status(name)
    assert status is not None
    return status


async def tell(cell: Cell, status: JobStatus) -> int:
    return await cell.user.publish(cell.user.subjects.status(status.namespace, status.name), encode(status))


def remove(cell: Cell, *sequences: int) -> None:
    """Delete messages of the ledger, as an operator of NATS may."""
    for sequence in sequences:
        stream(cell, StreamName.LEDGER).remove(sequence)


async def append(bus: FakeBus, *messages: bytes) -> int:
    """Append messages to the ledger; returns the sequence of the first."""
    head = (await bus.state(StreamName.LEDGER)).last_seq
    for number, message in enumerate(messages):
        await bus.append(message, expected_seq=head + number)
    return head + 1
