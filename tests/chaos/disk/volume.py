"""Files in memory, and what of them would be there after a power loss.

The model is that of a journaling file system with delayed allocation. A write is durable once its file is synced. What
changes names and sizes (created, renamed, removed, truncated) is a journal: a sync of any file or directory commits all
of it so far, in order. Without a sync nothing is durable; a power loss with a seed lets a part of it survive, as if the
system had written it back already: the journal up to some entry, and some pages of the writes.
"""

import errno
import stat
import time
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

ROOT: Final = 1
PAGE: Final = 4096
_SURVIVES: Final = 0.5
"""Chance of a page that was not synced to be on the disk, where a seed draws it."""


class Write(NamedTuple):
    """A write that is not synced; ``order`` counts writes and entries of the journal together."""

    order: int
    offset: int
    data: bytes


class Named(NamedTuple):
    """Entry of the journal: a name of a folder means this node from now on; None if it is removed."""

    order: int
    folder: int
    name: str
    node: int | None


class Resized(NamedTuple):
    """Entry of the journal: a file has this size from now on, in bytes."""

    order: int
    node: int
    size: int


@dataclass
class Node:
    """A file or a folder: as it is, and as it is on the disk."""

    number: int
    mode: int
    mtime_ns: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[str, int] = field(default_factory=dict)
    synced_data: bytearray = field(default_factory=bytearray)
    synced_names: dict[str, int] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    is_removed: bool = False
    """Whether no name leads to it any more; a process may still have it open."""

    @property
    def is_folder(self) -> bool:
        """Whether it has names instead of data."""
        return stat.S_ISDIR(self.mode)


@dataclass
class Figures:
    """Counts since the start; bytes where it says so."""

    writes: int = 0
    syncs: int = 0
    refused: int = 0
    """Writes for which there was no room."""
    used_bytes: int = 0
    losses: int = 0
    lost_bytes: int = 0
    """Bytes of writes that power losses discarded."""
    lost_names: int = 0
    """Entries of the journal that power losses discarded."""


class Volume:
    """All files of a disk; methods raise OSError as system calls do."""

    def __init__(self) -> None:
        self.figures = Figures()
        self.limit_bytes: int | None = None
        """Bytes that files may have together; None for no limit."""
        self._order = 0
        self._next = ROOT + 1
        self._journal: list[Named | Resized] = []
        self._unused: set[int] = set()
        self._nodes = {ROOT: Node(ROOT, stat.S_IFDIR | 0o755, time.time_ns())}

    def node(self, number: int) -> Node:
        """A node.

        Raises:
            OSError: ESTALE if it is not there any more, such as a file that a power loss took.
        """
        found = self._nodes.get(number)
        if found is None:
            raise OSError(errno.ESTALE, "node is gone")
        return found

    def find(self, folder: int, name: str) -> Node:
        """The node of a name.

        Raises:
            OSError: ENOENT if there is none.
        """
        found = self.node(folder).names.get(name)
        if found is None:
            raise OSError(errno.ENOENT, name)
        return self.node(found)

    def create(self, folder: int, name: str, mode: int) -> Node:
        """Make an empty file or folder.

        Raises:
            OSError: EEXIST if the name is in use.
        """
        if name in self.node(folder).names:
            raise OSError(errno.EEXIST, name)
        made = Node(self._next, mode, time.time_ns())
        self._next += 1
        self._nodes[made.number] = made
        self._name(folder, name, made.number)
        return made

    def remove(self, folder: int, name: str, *, is_folder: bool) -> None:
        """Take away a name. The data of an open file stays readable.

        Raises:
            OSError: ENOTEMPTY, ENOTDIR or EISDIR, as for system calls.
        """
        node = self.find(folder, name)
        if node.is_folder != is_folder:
            raise OSError(errno.ENOTDIR if is_folder else errno.EISDIR, name)
        if node.names:
            raise OSError(errno.ENOTEMPTY, name)
        self._name(folder, name, None)
        node.is_removed = True
        self.figures.used_bytes -= len(node.data)

    def forget(self, number: int) -> None:
        """Note that no process has a removed file open any more."""
        node = self._nodes.get(number)
        if node is not None and node.is_removed:
            self._unused.add(number)

    def rename(self, folder: int, name: str, to_folder: int, to_name: str) -> None:
        """Give a node another name; what had that name loses it."""
        node = self.find(folder, name)
        there = self.node(to_folder).names.get(to_name)
        if there == node.number:
            return
        if there is not None:
            self.remove(to_folder, to_name, is_folder=node.is_folder)
        self._name(folder, name, None)
        self._name(to_folder, to_name, node.number)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Bytes of a file; fewer at its end."""
        return bytes(self.node(number).data[offset : offset + size])

    def write(self, number: int, offset: int, data: bytes) -> int:
        """Write as much as there is room for; returns how many bytes.

        Raises:
            OSError: ENOSPC if there is room for none of them.
        """
        node = self.node(number)
        grown = offset + len(data) - len(node.data)
        if self.limit_bytes is not None and grown > 0:
            room = max(0, self.limit_bytes - self.figures.used_bytes)
            if room < grown:
                self.figures.refused += 1
                data = data[: max(0, len(data) - (grown - room))]
                if not data:
                    raise OSError(errno.ENOSPC, "no space left")
        before = len(node.data)
        _put(node.data, offset, data)
        self._order += 1
        node.writes.append(Write(self._order, offset, data))
        node.mtime_ns = time.time_ns()
        self.figures.writes += 1
        if not node.is_removed:
            self.figures.used_bytes += len(node.data) - before
        return len(data)

    def resize(self, number: int, size: int) -> None:
        """Cut a file, or append zeros."""
        node = self.node(number)
        if not node.is_removed:
            self.figures.used_bytes += size - len(node.data)
        _resize(node.data, size)
        node.mtime_ns = time.time_ns()
        self._order += 1
        self._journal.append(Resized(self._order, number, size))

    def sync(self, number: int) -> None:
        """Make a file or folder durable, and the journal with it."""
        self.figures.syncs += 1
        self._commit(self._journal)
        self._journal.clear()
        for unused in self._unused:
            del self._nodes[unused]
        self._unused.clear()
        _write_back(self.node(number))

    def write_back(self) -> None:
        """Make everything durable, as the operating system does after a while."""
        self._commit(self._journal)
        self._journal.clear()
        for node in self._nodes.values():
            _write_back(node)

    def erase(self) -> None:
        """Lose all files, as when the disk is replaced by a new one."""
        self._journal.clear()
        self._unused.clear()
        self._nodes = {ROOT: Node(ROOT, stat.S_IFDIR | 0o755, time.time_ns())}
        self.figures.used_bytes = 0

    def lose_power(self, seed: int | None = None) -> None:
        """Be as the disk is after a power loss.

        Args:
            seed: Draws what of that which was not synced is on the disk nevertheless; None for nothing of it.
        """
        random = Random(seed) if seed is not None else None  # noqa: S311  # a test's choices
        self.figures.losses += 1
        kept = random.randint(0, len(self._journal)) if random is not None else 0
        self._commit(self._journal[:kept])
        self.figures.lost_names += len(self._journal) - kept
        self._journal.clear()
        for node in self._nodes.values():
            for write in node.writes:
                self._lose(node, write, random)
            node.writes.clear()
            node.data = bytearray(node.synced_data)
            node.names = dict(node.synced_names)
            node.is_removed = False
        self._unused.clear()
        there = self._reachable()
        self._nodes = {number: node for number, node in self._nodes.items() if number in there}
        self.figures.used_bytes = sum(len(node.data) for node in self._nodes.values())

    def _lose(self, node: Node, write: Write, random: Random | None) -> None:
        """Discard a write, or those pages of it that are not drawn."""
        end = write.offset + len(write.data)
        for page in range(write.offset - write.offset % PAGE, end, PAGE):
            first, last = max(page, write.offset), min(page + PAGE, end)
            if random is not None and random.random() < _SURVIVES:
                _put(node.synced_data, first, write.data[first - write.offset : last - write.offset])
            else:
                self.figures.lost_bytes += last - first

    def _name(self, folder: int, name: str, number: int | None) -> None:
        node = self.node(folder)
        if number is None:
            node.names.pop(name)
        else:
            node.names[name] = number
        node.mtime_ns = time.time_ns()
        self._order += 1
        self._journal.append(Named(self._order, folder, name, number))

    def _commit(self, entries: list[Named | Resized]) -> None:
        for entry in entries:
            if isinstance(entry, Named):
                names = self._nodes[entry.folder].synced_names
                if entry.node is None:
                    names.pop(entry.name, None)
                else:
                    names[entry.name] = entry.node
            else:
                node = self._nodes[entry.node]
                _resize(node.synced_data, entry.size)
                node.writes = [
                    cut for write in node.writes if (cut := _cut(write, entry)).data or write.order > entry.order
                ]

    def _reachable(self) -> set[int]:
        found, ahead = {ROOT}, [ROOT]
        while ahead:
            for number in self._nodes[ahead.pop()].names.values():
                if number not in found:
                    found.add(number)
                    ahead.append(number)
        return found


def _write_back(node: Node) -> None:
    for write in node.writes:
        _put(node.synced_data, write.offset, write.data)
    node.writes.clear()


def _put(data: bytearray, offset: int, new: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(new)] = new


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _cut(write: Write, resized: Resized) -> Write:
    """What is left of a write after a truncation behind it."""
    if write.order > resized.order:
        return write
    return write._replace(data=write.data[: max(0, resized.size - write.offset)])
