"""Requests of the kernel to a file system, and answers to them: the part of FUSE 7.31 that a volume needs.

Numbers and layouts are those of ``linux/fuse.h``. All answers say that nothing may be cached: the volume changes below
the kernel when it loses power.
"""

import errno
import os
import stat
import struct
from collections.abc import Callable
from typing import Final

from tests.chaos.disk.volume import PAGE, ROOT, Node, Volume

_HEADER: Final = struct.Struct("<IIQQIIIHH")
_ANSWER: Final = struct.Struct("<IiQ")
_INIT: Final = struct.Struct("<IIIIHHIIHHI28x")
_ATTR: Final = struct.Struct("<6Q10I")
_ENTRY: Final = struct.Struct("<QQQQII")
_STATFS: Final = struct.Struct("<5Q4I24x")
_READ_OR_WRITE: Final = struct.Struct("<QQIIQII")
_SETATTR: Final = struct.Struct("<IIQQ")
_DIRENT: Final = struct.Struct("<QQII")
_MINOR: Final = 31
_WRITE_MAX: Final = 1 << 20
_BIG_WRITES: Final = 1 << 5
_MAX_PAGES: Final = 1 << 22
_DIRECT_IO: Final = 1
_SET_MODE: Final = 1
_SET_SIZE: Final = 8
_FREE_WITHOUT_LIMIT: Final = 64 << 30

BUFFER_BYTES: Final = _WRITE_MAX + PAGE
"""Room for the largest request."""

_GONE: Final = {2, 36, 42}
"""FORGET, INTERRUPT, BATCH_FORGET: they have no answer."""


class Protocol:
    """Answers requests with what a volume says.

    Args:
        volume: The files.
        before_write: Called before bytes are written; may take as long as a slow disk does.
        before_sync: The same before something is made durable.
    """

    def __init__(self, volume: Volume, *, before_write: Callable[[], None], before_sync: Callable[[], None]) -> None:
        self._volume = volume
        self._before_write = before_write
        self._before_sync = before_sync
        self._calls: dict[int, Callable[[int, memoryview], bytes]] = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: self._rename,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: self._nothing,
            20: self._fsync,
            25: self._nothing,
            26: self._init,
            27: self._opendir,
            28: self._readdir,
            29: self._nothing,
            30: self._fsync,
            35: self._create,
            45: self._rename2,
        }

    def answer(self, request: memoryview) -> bytes | None:
        """The answer to one request; None if it has none."""
        _, call, unique, node, *_ = _HEADER.unpack_from(request)
        body = request[_HEADER.size :]
        if call in _GONE:
            self._forget(call, node, body)
            return None
        try:
            done = self._calls.get(call, _unknown)(node, body)
        except OSError as error:
            return _ANSWER.pack(_ANSWER.size, -(error.errno or errno.EIO), unique)
        return _ANSWER.pack(_ANSWER.size + len(done), 0, unique) + done

    def _forget(self, call: int, node: int, body: memoryview) -> None:
        if call == 2:
            self._volume.forget(node)
        elif call == 42:
            (count,) = struct.unpack_from("<I", body)
            for index in range(count):
                self._volume.forget(struct.unpack_from("<Q", body, 8 + 16 * index)[0])

    def _init(self, _: int, body: memoryview) -> bytes:
        major, _minor, readahead, flags = struct.unpack_from("<IIII", body)
        wanted = flags & (_BIG_WRITES | _MAX_PAGES)
        return _INIT.pack(major, _MINOR, readahead, wanted, 64, 48, _WRITE_MAX, 1, _WRITE_MAX // PAGE, 0, 0)

    def _lookup(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._volume.find(node, _text(body)))

    def _getattr(self, node: int, _: memoryview) -> bytes:
        return self._attr_answer(node)

    def _setattr(self, node: int, body: memoryview) -> bytes:
        which, _, _, size = _SETATTR.unpack_from(body)
        if which & _SET_SIZE:
            self._before_write()
            self._volume.resize(node, size)
        if which & _SET_MODE:
            (mode,) = struct.unpack_from("<I", body, 68)
            found = self._volume.node(node)
            found.mode = stat.S_IFMT(found.mode) | stat.S_IMODE(mode)
        return self._attr_answer(node)

    def _mkdir(self, node: int, body: memoryview) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        return self._entry(self._volume.create(node, _text(body[8:]), stat.S_IFDIR | (mode & ~umask)))

    def _unlink(self, node: int, body: memoryview) -> bytes:
        self._volume.remove(node, _text(body), is_folder=False)
        return b""

    def _rmdir(self, node: int, body: memoryview) -> bytes:
        self._volume.remove(node, _text(body), is_folder=True)
        return b""

    def _rename(self, node: int, body: memoryview) -> bytes:
        return self._renamed(node, body, 8)

    def _rename2(self, node: int, body: memoryview) -> bytes:
        if struct.unpack_from("<I", body, 8)[0]:
            raise OSError(errno.EINVAL, "flags of a rename")
        return self._renamed(node, body, 16)

    def _renamed(self, node: int, body: memoryview, names: int) -> bytes:
        (to_folder,) = struct.unpack_from("<Q", body)
        name, to_name, *_ = bytes(body[names:]).split(b"\0")
        self._volume.rename(node, os.fsdecode(name), to_folder, os.fsdecode(to_name))
        return b""

    def _open(self, node: int, _: memoryview) -> bytes:
        self._volume.node(node)
        return struct.pack("<QII", node, _DIRECT_IO, 0)

    def _opendir(self, node: int, _: memoryview) -> bytes:
        self._volume.node(node)
        return struct.pack("<QII", node, 0, 0)

    def _create(self, node: int, body: memoryview) -> bytes:
        _, mode, umask, _ = struct.unpack_from("<IIII", body)
        made = self._volume.create(node, _text(body[16:]), stat.S_IFREG | (mode & ~umask & 0o7777))
        return self._entry(made) + struct.pack("<QII", made.number, _DIRECT_IO, 0)

    def _read(self, node: int, body: memoryview) -> bytes:
        _, offset, size, *_ = _READ_OR_WRITE.unpack_from(body)
        return self._volume.read(node, offset, size)

    def _write(self, node: int, body: memoryview) -> bytes:
        _, offset, size, _, _, flags, _ = _READ_OR_WRITE.unpack_from(body)
        data = bytes(body[_READ_OR_WRITE.size : _READ_OR_WRITE.size + size])
        self._before_write()
        if flags & os.O_APPEND:
            offset = len(self._volume.node(node).data)
        done = self._volume.write(node, offset, data)
        if flags & os.O_DSYNC:
            self._before_sync()
            self._volume.sync(node)
        return struct.pack("<II", done, 0)

    def _fsync(self, node: int, _: memoryview) -> bytes:
        self._before_sync()
        self._volume.sync(node)
        return b""

    def _statfs(self, _: int, __: memoryview) -> bytes:
        used = self._volume.figures.used_bytes
        limit = self._volume.limit_bytes
        total = limit if limit is not None else used + _FREE_WITHOUT_LIMIT
        free = max(0, total - used) // PAGE
        return _STATFS.pack(total // PAGE, free, free, 1 << 20, 1 << 20, PAGE, 255, PAGE, 0)

    def _readdir(self, node: int, body: memoryview) -> bytes:
        _, offset, size, *_ = _READ_OR_WRITE.unpack_from(body)
        entries = [(".", ROOT), ("..", ROOT), *sorted(self._volume.node(node).names.items())]
        told = b""
        for index, (name, number) in enumerate(entries[offset:], offset + 1):
            raw = os.fsencode(name)
            kind = stat.S_IFMT(self._volume.node(number).mode) >> 12
            entry = _DIRENT.pack(number, index, len(raw), kind) + raw
            entry += bytes(-len(entry) % 8)
            if len(told) + len(entry) > size:
                break
            told += entry
        return told

    def _nothing(self, _: int, __: memoryview) -> bytes:
        return b""

    def _entry(self, node: Node) -> bytes:
        return _ENTRY.pack(node.number, 0, 0, 0, 0, 0) + self._attr(node)

    def _attr_answer(self, number: int) -> bytes:
        return bytes(16) + self._attr(self._volume.node(number))

    def _attr(self, node: Node) -> bytes:
        seconds, left = divmod(node.mtime_ns, 1_000_000_000)
        size = len(node.data)
        # number, size, blocks, three times in s, the same in ns, mode, links, owner, group, device, block size, flags
        times = (seconds, seconds, seconds, left, left, left)
        links = 2 if node.is_folder else 1
        return _ATTR.pack(node.number, size, -(-size // 512), *times, node.mode, links, 0, 0, 0, PAGE, 0)


def _text(body: memoryview) -> str:
    return os.fsdecode(bytes(body).partition(b"\0")[0])


def _unknown(_: int, __: memoryview) -> bytes:
    raise OSError(errno.ENOSYS, "no such request")
