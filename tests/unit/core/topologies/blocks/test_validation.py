"""Requests for blocks: every row of the tables of validation, with reason, field, value and what would be right."""

import pytest

from berth.core.topologies.blocks.validation import (
    BadBlocks,
    BlockRequest,
    BlockShape,
    Pods,
    check_blocks,
    int64_or_zero,
)


def a3(sp_block: str | None, *tasks: Pods, size: int = 48, node_chips: int = 16) -> BlockRequest:
    return BlockRequest("a3", node_chips, sp_block, tasks, size, ra_block=None)


def on_850(sp_block: str | None, *tasks: Pods, size: int = 48) -> BlockRequest:
    return BlockRequest("850", 8, sp_block, tasks, size, ra_block=None)


def racks(
    sp_block: str | None, *tasks: Pods, ra_block: str | None = None, size: int = 48, ub_memory: bool = False
) -> BlockRequest:
    return BlockRequest("rack", 8, sp_block, tasks, size, ra_block=ra_block, ub_memory=ub_memory)


@pytest.mark.parametrize(
    ("request_", "shape"),
    [
        (a3("128", Pods(16, 16)), BlockShape(8, 16)),
        (a3("64", Pods(8, 8), node_chips=8), BlockShape(8, 8)),
        (a3(None, Pods(16, 16)), BlockShape(16, 16)),
        (a3("+32", Pods(2, 16), Pods(2, 16)), BlockShape(2, 4)),
        (a3("6", Pods(1, 6)), BlockShape(1, 1)),
        (a3("1", Pods(1, 1)), BlockShape(1, 1)),
        (a3("16", Pods(1, 16)), BlockShape(1, 1)),
        (a3("768", Pods(48, 16)), BlockShape(48, 48)),
        (a3("768", Pods(48, 16), size=0), BlockShape(48, 48)),
        (a3("32", Pods(4, 16), Pods(1, 0, may_lack_chips=True)), BlockShape(2, 4)),
        (a3("4", Pods(1, 4), Pods(3, 0)), BlockShape(1, 1)),
        (on_850("5", Pods(1, 5)), BlockShape(1, 1)),
        (on_850("3", Pods(3, 8)), BlockShape(1, 3)),
        (on_850("32", Pods(8, 8)), BlockShape(4, 8)),
        (racks("32", Pods(8, 8)), BlockShape(4, 8, 1)),
        (racks("64", Pods(8, 8), ra_block="32"), BlockShape(8, 8, 4)),
        (racks("8", Pods(2, 8), ra_block="1"), BlockShape(1, 2, 1)),
        (racks("5", Pods(1, 5)), BlockShape(1, 1, 1)),
        (racks("1024", Pods(128, 8), ra_block="64", size=1024, ub_memory=True), BlockShape(128, 128, 8)),
    ],
)
def test_sound_requests(request_: BlockRequest, shape: BlockShape) -> None:
    assert check_blocks(request_) == shape


ARGUMENT = "InvalidArgument"
RESOURCE = "InvalidResourceRequest"
SP_850 = "sp-block is invalid"
CHIPS = "npu num is invalid"
SP_RACK = "Parameter sp-block is invalid."
SIZE = "Parameter super-pod-size is invalid."
RA = "Parameter ra-block is invalid."


@pytest.mark.parametrize(
    ("request_", "reason", "subject", "value", "expected"),
    [
        (a3("0", Pods(2, 16)), ARGUMENT, "sp-block", "0", "a multiple of 16"),
        (a3("-16", Pods(2, 16)), ARGUMENT, "sp-block", "-16", "a multiple of 16"),
        (a3("two", Pods(2, 16)), ARGUMENT, "sp-block", "two", "a multiple of 16"),
        (a3("16.0", Pods(2, 16)), ARGUMENT, "sp-block", "16.0", "a multiple of 16"),
        (a3("٣٢", Pods(2, 16)), ARGUMENT, "sp-block", "٣٢", "a multiple of 16"),
        (a3("9" * 200, Pods(2, 16)), ARGUMENT, "sp-block", "9" * 80, "a multiple of 16"),
        (a3("8", Pods(2, 16)), ARGUMENT, "sp-block", "8", "all 32 chips of the job"),
        (a3("24", Pods(3, 16)), ARGUMENT, "sp-block", "24", "a multiple of 16"),
        (a3("784", Pods(49, 16)), RESOURCE, "sp-block", "784", "at most 768, the chips of 48 nodes"),
        (a3(str(1 << 62), Pods(2, 16)), RESOURCE, "sp-block", str(1 << 62), "at most 768"),
        (a3(None, Pods(49, 16)), RESOURCE, "sp-block", "absent, so 784", "at most 768"),
        (a3("3", Pods(1, 3)), RESOURCE, "chips", "3", "1, or an even number up to 16"),
        (a3("32", Pods(1, 32)), RESOURCE, "chips", "32", "1, or an even number up to 16"),
        (a3("16", Pods(1, 8)), RESOURCE, "sp-block", "16", "8, the chips of the job's only pod"),
        (a3("32", Pods(3, 16)), RESOURCE, "chips", "48", "a multiple of 32, the chips of a block"),
        (a3("512", Pods(48, 16)), RESOURCE, "chips", "768", "set annotation sp-block to a divisor of 768, such as 384"),
        (a3("32", Pods(4, 8)), RESOURCE, "chips", "8", "16 in every pod"),
        (a3("32", Pods(4, 16), Pods(1, 0)), RESOURCE, "chips", "0", "16 in every pod"),
        (on_850("0", Pods(1, 8)), SP_850, "sp-block", "0", "1 or more"),
        (on_850("-8", Pods(1, 8)), SP_850, "sp-block", "-8", "1 or more"),
        (on_850("12", Pods(3, 8)), SP_850, "sp-block", "12", "from 8, the chips of a node, a multiple of it"),
        (on_850("24", Pods(3, 8), size=2), SP_850, "sp-block", "24", "at most 16, the chips of 2 nodes"),
        (on_850("8", Pods(1, 9)), CHIPS, "chips", "9", "1 to 8"),
        (on_850("8", Pods(1, 7)), CHIPS, "sp-block", "8", "7, the chips of the job's only pod"),
        (on_850("32", Pods(3, 8)), CHIPS, "chips", "24", "a multiple of 32"),
        (on_850("8", Pods(2, 4)), CHIPS, "chips", "4", "8 in every pod"),
        (on_850("8", Pods(2, 8), Pods(1, 0, may_lack_chips=True)), CHIPS, "chips", "0", "8 in every pod"),
        (racks("0", Pods(8, 8)), SP_RACK, "sp-block", "0", "1 or more"),
        (racks("12", Pods(6, 8)), SP_RACK, "sp-block", "12", "a multiple of it"),
        (racks("64", Pods(12, 8), size=0), "job task num is invalid", "pods", "12", "a multiple of 8"),
        (racks("32", Pods(8, 8), size=0, ra_block="3"), SIZE, "super-pod-size", "0", "1 to 1024"),
        (racks("32", Pods(8, 8), size=1025), SIZE, "super-pod-size", "1025", "1 to 1024"),
        (racks("32", Pods(8, 8), size=3), SIZE, "sp-block", "32", "at most 24, the chips of 3 nodes"),
        (racks("32", Pods(8, 8), ra_block="0"), RA, "ra-block", "0", "a power of two from 1 to 64"),
        (racks("32", Pods(8, 8), ra_block="128"), RA, "ra-block", "128", "a power of two from 1 to 64"),
        (racks("32", Pods(8, 8), ra_block="24"), RA, "ra-block", "24", "a power of two from 1 to 64"),
        (racks("32", Pods(8, 8), ra_block="x"), RA, "ra-block", "x", "a power of two from 1 to 64"),
        (racks("32", Pods(8, 8), ra_block="64"), RA, "ra-block", "64", "a block of 4 nodes"),
        (racks("24", Pods(6, 8), ra_block="16"), RA, "ra-block", "16", "a block of 3 nodes"),
        (racks("8", Pods(1, 9)), CHIPS, "chips", "9", "1 to 8"),
        (racks("8", Pods(1, 4)), CHIPS, "sp-block", "8", "4, the chips of the job's only pod"),
        (racks("3", Pods(2, 8)), CHIPS, "chips", "16", "a multiple of 3"),
        (racks("4", Pods(3, 4), ra_block="8"), CHIPS, "chips", "12", "a multiple of 8, the chips of ra-block"),
        (racks("8", Pods(2, 4)), CHIPS, "chips", "4", "8 in every pod"),
        (racks("8", Pods(129, 8), size=1024, ub_memory=True), CHIPS, "chips", "1032", "at most 1024"),
    ],
)
def test_requests_that_are_turned_away(
    request_: BlockRequest, reason: str, subject: str, value: str, expected: str
) -> None:
    found = check_blocks(request_)
    assert isinstance(found, BadBlocks)
    assert (found.reason, found.subject, found.value) == (reason, subject, value)
    assert expected in found.expected


def test_the_task_whose_pods_are_wrong_is_named() -> None:
    found = check_blocks(a3("32", Pods(2, 16), Pods(4, 8)))
    assert isinstance(found, BadBlocks)
    assert (found.subject, found.task) == ("chips", 1)
    found = check_blocks(a3("32", Pods(3, 16)))
    assert isinstance(found, BadBlocks)
    assert found.task == -1


def test_more_chips_than_shared_memory_allows_are_fine_without_it() -> None:
    assert check_blocks(racks("8", Pods(129, 8), size=1024)) == BlockShape(1, 129, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-3", -3), ("+7", 7), ("", 0), (" 1", 0), ("1\n", 0), ("1_0", 0), (str(1 << 63), 0), ("0x10", 0)],
)
def test_integers_as_the_reference_reads_them(text: str, value: int) -> None:
    assert int64_or_zero(text) == value
