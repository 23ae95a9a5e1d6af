"""A ledger that has lost records by which pods are bound is not decided on."""

from collections.abc import AsyncIterator

import pytest

from berth.runtime.errors import TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode, open_envelope
from berth.schemas.facts import LedgerSeen, Witness
from berth.schemas.ledger import Epoch
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.ledger_guard import CannotLeadError
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await Cell().open()
    await made.nodes([a_node("a"), a_node("b")])
    await made.turns(2)
    yield made
    await made.close()


async def stream_of(cell: Cell) -> str:
    return (await cell.user.state(StreamName.LEDGER)).created


async def say(cell: Cell, stream: str, sequence: int) -> None:
    """Publish what the inventory says of the ledger."""
    await cell.user.publish(cell.user.subjects.fact_ledger, encode(LedgerSeen(stream, 1, sequence, at_ms=5)))
    await cell.settle()


async def successor(cell: Cell) -> Dispatcher:
    bus = FakeBus(cell.server, cell.cell)
    cell.buses.append(bus)
    made = Dispatcher(bus, cell.clock, cell.config, holder="heir", instruments=Instruments.make(DispatcherMetrics))
    await made.load()
    return made


async def epochs(cell: Cell) -> int:
    return sum(open_envelope(data).kind == Epoch.KIND for data in await cell.ledger())


async def test_pods_of_records_that_the_ledger_has_hinder_nobody(cell: Cell) -> None:
    head = cell.dispatcher.state.fold.head
    await say(cell, await stream_of(cell), head)
    await cell.submit(a_job("one"))
    await cell.turns(3)
    assert cell.dispatcher.state.fold.head > head
    assert await cell.dispatcher.obstacle() == ""


async def test_a_record_that_the_ledger_does_not_have_ends_the_reign_before_anything_is_decided(cell: Cell) -> None:
    head = cell.dispatcher.state.fold.head
    await say(cell, await stream_of(cell), head + 1)
    await cell.submit(a_job("one"))
    await cell.settle()
    with pytest.raises(
        CannotLeadError, match=f"ends at record {head}, but a pod is bound by record {head + 1}"
    ) as error:
        await cell.dispatcher.turn()
    assert "berth restore" in str(error.value)
    assert (await cell.user.state(StreamName.LEDGER)).last_seq == head


@pytest.mark.parametrize(("nodes", "is_named"), [(("a",), False), (("a", "b"), True)])
async def test_a_restore_is_named_once_pods_of_two_nodes_say_the_same(
    cell: Cell, nodes: tuple[str, ...], *, is_named: bool
) -> None:
    head = cell.dispatcher.state.fold.head
    found = [Witness(f"team/p-{node}", node, head + 1 + number) for number, node in enumerate(nodes)]
    witnesses = [*reversed(found), Witness("team/old", "c", head)]
    fact = LedgerSeen(await stream_of(cell), 1, head + len(nodes), at_ms=5, witnesses=witnesses)
    await cell.user.publish(cell.user.subjects.fact_ledger, encode(fact))
    await cell.settle()
    with pytest.raises(CannotLeadError) as error:
        await cell.dispatcher.turn()
    said = str(error.value)
    assert ("berth restore" in said) == is_named
    assert f"team/p-a on node a (record {head + 1})" in said
    assert "team/old" not in said
    assert ("backup" in said) != is_named


async def test_nobody_begins_an_epoch_on_such_a_ledger(cell: Cell) -> None:
    await say(cell, await stream_of(cell), cell.dispatcher.state.fold.head + 1)
    heir = await successor(cell)
    before = await epochs(cell)
    assert await heir.obstacle()
    with pytest.raises(CannotLeadError, match="newest records were lost"):
        await heir.lead()
    assert await epochs(cell) == before
    await heir.stop()


async def test_records_that_are_on_their_way_are_no_obstacle(cell: Cell) -> None:
    heir = await successor(cell)
    known = heir.state.fold.head
    await cell.submit(a_job("one"))
    await cell.turns(3)
    await say(cell, await stream_of(cell), known + 1)
    heir.state.apply_fact(
        cell.user.subjects.fact_ledger, 10_000, encode(LedgerSeen(await stream_of(cell), 1, known + 1))
    )
    assert heir.state.fold.head == known
    assert await heir.obstacle() == ""
    await heir.stop()


async def test_a_ledger_in_a_new_stream_waits_until_the_pods_of_the_cluster_are_known(cell: Cell) -> None:
    await say(cell, "another stream", 1)
    with pytest.raises(CannotLeadError, match="made another stream; is the inventory running"):
        await cell.dispatcher.turn()
    heir = await successor(cell)
    with pytest.raises(CannotLeadError):
        await heir.lead()
    await say(cell, await stream_of(cell), 0)
    await heir.follow(heir.progress)
    await heir.lead()
    await heir.stop()


async def test_a_fact_that_does_not_decode_says_nothing(cell: Cell) -> None:
    heir = await successor(cell)
    await cell.user.publish(cell.user.subjects.fact_ledger, b"no message")
    await cell.settle()
    assert await heir.obstacle() == ""
    await heir.stop()


async def test_what_pods_say_is_kept_in_snapshots(cell: Cell) -> None:
    await say(cell, await stream_of(cell), 1)
    await cell.turns(1)
    await cell.dispatcher.snapshots.write()
    await cell.user.publish(cell.user.subjects.fact_timer, b"later")
    heir = await successor(cell)
    assert heir.state.ledger_seen == LedgerSeen(await stream_of(cell), 1, 1, at_ms=5)
    await heir.stop()


async def test_without_the_bus_it_is_not_known_whether_to_lead(cell: Cell) -> None:
    cell.dispatcher.state.apply_fact(cell.user.subjects.fact_ledger, 10_000, encode(LedgerSeen("s", 1, 99)))
    cell.server.is_down = True
    with pytest.raises(TransientError):
        await cell.dispatcher.obstacle()
    cell.server.is_down = False


async def test_a_record_of_a_later_epoch_in_the_place_of_a_lost_one_ends_the_reign(cell: Cell) -> None:
    """The ledger lost its end and grew again before the fact arrived: the lost record's sequence is used anew."""
    heir = await successor(cell)
    await heir.lead()
    began = heir.state.fold.head
    await heir.stop()
    last = await successor(cell)
    await last.lead()
    await say(cell, await stream_of(cell), began)
    await last.follow(last.progress)
    with pytest.raises(
        CannotLeadError, match=f"record {began} of the ledger is of epoch 2, but .* of epoch 1"
    ) as error:
        await last.turn()
    assert "berth restore" in str(error.value)
    assert await last.obstacle()
    await last.stop()


async def test_a_record_that_agrees_is_read_once(cell: Cell) -> None:
    """A pod of an earlier epoch is bound by a record that the ledger has; it is not read again each turn."""
    record = cell.dispatcher.state.fold.head
    heir = await successor(cell)
    await heir.lead()
    await say(cell, await stream_of(cell), record)
    await heir.turn()
    assert heir.state.ledger_seen is not None
    cell.server.is_down = True
    assert await heir.obstacle() == ""
    cell.server.is_down = False
    await heir.stop()


async def test_a_message_that_is_no_record_contradicts_nothing(cell: Cell) -> None:
    sequence = await cell.user.append(b"no record", expected_seq=cell.dispatcher.state.fold.head)
    heir = await successor(cell)
    await heir.lead()
    await say(cell, await stream_of(cell), sequence)
    await heir.turn()
    assert heir.state.ledger_seen is not None
    assert await heir.obstacle() == ""
    await heir.stop()
