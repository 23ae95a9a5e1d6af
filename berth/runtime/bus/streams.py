"""Streams of a cell on the server: creation from their specifications, checks, removal of messages."""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import StreamState
from berth.runtime.bus.stream_api import FLOOR, FORMAT, Api, StreamInfo, of_leader
from berth.runtime.errors import FatalError, PoisonError, TransientError
from berth.runtime.logs import Logger
from berth.schemas.envelope import OlderVersionError
from berth.schemas.message import BASELINE
from berth.schemas.subjects import StreamName, StreamSpec, Subjects

_NS: Final = 1_000_000_000
_BACKOFF: Final = Backoff(first_s=0.01, max_s=0.2)
_BEGIN_S: Final = 30.0
"""Longest time until a cluster has a leader and has found its servers."""
_LEADER_S: Final = 5.0
"""How long to wait for the leader of a stream that another process may just have made; some are there for good."""
_ANSWER_S: Final = 0.5
"""A cluster without a leader does not answer, so single requests have a short timeout."""
_UNLIMITED: Final = -1
_FOREVER_KEPT: Final = frozenset({StreamName.FACTS})  # its mirror keeps one message a subject
_FIXED_FIELDS: Final = frozenset({"storage", "retention", "mirror", "persist_mode"})  # the server cannot change these


class Limits(NamedTuple):
    """What differs from the specifications of streams: limits in bytes and seconds, and which are not made."""

    max_bytes: Mapping[StreamName, int]
    max_age_s: Mapping[StreamName, int]
    waits_for: Collection[StreamName] = ()
    """Streams that somebody else makes and corrects."""

    def leaves_age(self, spec: StreamSpec) -> bool:
        """Whether the age of a stream that exists stays as it is."""
        return spec.has_set_age and spec.name not in self.max_age_s


async def ensure_streams(api: Api, subjects: Subjects, *, replicas: int, limits: Limits, log: Logger) -> None:
    """Create or correct all streams of a cell; see :meth:`berth.runtime.bus.port.Bus.ensure_streams`.

    Retries for 30 s if the server is not ready: it starts, or its cluster has no leader. A stream that was there
    already and has no leader is waited for some 5 s: whoever needs it will see.

    Raises:
        FatalError: A stream exists with a setting that cannot be changed, or one is gone whose mirror has messages.
        OlderVersionError: A stream is of a release before 0.5.
        TransientError: The server is still not ready.
    """
    reason = ""
    failures = 0
    made: set[str] = set()
    patience = _Patience()
    wanted: deque[tuple[dict[str, Any], bool]] = deque()
    waits_for = {subjects.stream(name) for name in limits.waits_for}
    specs = subjects.streams()
    mirrors = {subjects.stream(spec.mirror_of): subjects.stream(spec.name) for spec in specs if spec.mirror_of}
    for spec in sorted(specs, key=lambda spec: spec.name is not StreamName.LEDGER):  # it tells the release
        max_bytes = limits.max_bytes.get(spec.name, spec.max_bytes)
        config = stream_config(subjects, spec, replicas=replicas, max_bytes=max_bytes)
        config["max_age"] = limits.max_age_s.get(spec.name, spec.max_age_s) * _NS
        wanted.append((config, limits.leaves_age(spec)))
    try:
        async with asyncio.timeout(_BEGIN_S):
            while wanted:
                try:
                    name = wanted[0][0]["name"]
                    if name not in made:
                        if name in waits_for:
                            found: StreamInfo | None = await _find(api, wanted[0][0], leaves_age=wanted[0][1], log=log)
                        else:
                            found = await _ensure(
                                api, wanted[0][0], leaves_age=wanted[0][1], mirror=mirrors.get(name, "")
                            )
                        if found is None:
                            made.add(name)
                        else:
                            patience.see(name, found)
                    if name in made and replicas > 1:
                        await api.stream(name)  # a busy cluster elects its leader later: nobody can use it until then
                    wanted.popleft()
                    failures = 0
                except TransientError as error:
                    if error.reason != reason:
                        reason = error.reason
                        log.info("streams not ready", stream=wanted[0][0]["name"], reason=reason)
                    failures += 1
                    await asyncio.sleep(_BACKOFF.pause_s(failures))
    except TimeoutError as error:
        raise TransientError(f"stream {wanted[0][0]['name']} not ready after {_BEGIN_S:g} s: {reason}") from error


class _Patience:
    """Time for streams that were there already to get a leader: another process may just have made them.

    That of each begins when it is seen without one.
    """

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def see(self, stream: str, info: StreamInfo) -> None:
        """Check that a stream has a leader, or that the time is over.

        Raises:
            TransientError: The stream has no leader yet.
        """
        try:
            of_leader(stream, info)
        except TransientError:
            now_s = asyncio.get_running_loop().time()
            if now_s < self._until_s.setdefault(stream, now_s + _LEADER_S):
                raise


async def _ensure(api: Api, config: dict[str, Any], *, leaves_age: bool, mirror: str) -> StreamInfo | None:
    """Create or correct a stream; returns what it was before, None if it is created.

    Args:
        api: The server.
        config: Its settings.
        leaves_age: Do not correct the age of its messages.
        mirror: Stream that is filled from it; empty if none is.

    Raises:
        FatalError: It exists with a setting that cannot be changed, the server rejects its settings, or it is gone and
            its mirror has messages.
        OlderVersionError: It is of a release before 0.5.
    """
    name = config["name"]
    found = await api.find_stream(name, timeout_s=_ANSWER_S)
    if found is None:
        await _create(api, config, mirror)
        return None
    check_format(name, found)
    wrong = _wrong_fields(config, found, leaves_age=leaves_age)
    for field in wrong:
        if field in _FIXED_FIELDS:
            raise FatalError(
                f"stream {name} has {field}={found.config.get(field)!r}, needs {config[field]!r}, which cannot be changed"
            )
    if wrong:
        settings = {**found.config, **config, "metadata": {**found.metadata, **config["metadata"]}}
        if leaves_age:
            settings["max_age"] = found.config.get("max_age", 0)
        if settings["max_age"]:  # the server refuses a window that is longer
            settings["duplicate_window"] = min(settings.get("duplicate_window", 0), settings["max_age"])
        try:
            await api.update_stream(settings)
        except PoisonError as error:
            raise FatalError(f"stream {name}, fields {', '.join(wrong)}: {error.reason}") from error
    return found


async def _create(api: Api, config: dict[str, Any], mirror: str) -> None:
    name = config["name"]
    copy = await api.find_stream(mirror, timeout_s=_ANSWER_S) if mirror else None
    if copy is not None and copy.state.last_seq and await api.find_stream(name, timeout_s=_ANSWER_S) is None:
        refuse_lost(name, mirror, copy.state.last_seq)  # else another process has just made both
    try:
        await api.create_stream(config)
    except PoisonError as error:
        raise FatalError(f"stream {name} cannot be created: {error.reason}") from error


def refuse_lost(stream: str, mirror: str, mirrored_seq: int) -> None:
    """Check that a stream that does not exist never had a message.

    Made again, it would begin at 1, while its mirror and everything that counts by its sequences are ahead of it.

    Args:
        stream: The stream.
        mirror: Its mirror.
        mirrored_seq: The last sequence of the mirror.

    Raises:
        FatalError: It had one.
    """
    if mirrored_seq:
        raise FatalError(
            f"stream {stream} is gone, and {mirror} has what it had until sequence {mirrored_seq}: it was deleted or lost;"
            " it is not made again, restore a backup with: berth restore --replace"
        )


def check_format(stream: str, info: StreamInfo) -> None:
    """Check that a stream is one of this release, or never had a message.

    Raises:
        OlderVersionError: It is of a release before 0.5.
    """
    if info.state.last_seq and int(info.metadata.get(FORMAT, 0)) < BASELINE:
        raise OlderVersionError(f"stream {stream}")


def _wrong_fields(config: dict[str, Any], found: StreamInfo, *, leaves_age: bool) -> list[str]:
    left = {"max_age"} if leaves_age else set()
    return sorted(field for field in config.keys() - left if not _is_equal(config[field], found.config.get(field)))


async def _find(api: Api, config: dict[str, Any], *, leaves_age: bool, log: Logger) -> StreamInfo:
    """A stream that somebody else makes.

    Raises:
        OlderVersionError: It is of a release before 0.5.
        TransientError: It does not exist yet.
    """
    found = await api.find_stream(config["name"], timeout_s=_ANSWER_S)
    if found is None:
        raise TransientError(f"{config['name']} does not exist; make it with: berth streams apply")
    check_format(config["name"], found)
    if wrong := _wrong_fields(config, found, leaves_age=leaves_age):
        log.warning(
            "stream has other settings, correct it with: berth streams apply", stream=config["name"], fields=wrong
        )
    return found


async def wait_head(api: Api, stream: str, *, at_least: int, timeout_s: float) -> None:
    """Wait until a stream's last sequence is ``at_least`` that; see :meth:`berth.runtime.bus.port.Bus.wait_mirror`.

    Raises:
        TransientError: It was not reached within ``timeout_s``.
    """
    looks = 0
    reason = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    if (await api.stream(stream)).state.last_seq >= at_least:
                        return
                    reason = ""
                except TransientError as error:  # of an election, for one
                    reason = f": {error.reason}"
                looks += 1
                await asyncio.sleep(_BACKOFF.pause_s(looks))
    except TimeoutError as error:
        raise TransientError(f"{stream} has not reached {at_least} within {timeout_s} s{reason}") from error


async def is_stuck(api: Api, stream: str, *, beside: str) -> bool:
    """Whether a stream has no leader; see :meth:`berth.runtime.bus.port.Bus.is_stuck`."""
    try:
        found = await api.find_stream(stream)  # with time enough for a server that is busy
        if found is None or found.cluster.leader:
            return False
    except TransientError:
        pass  # that of a stream without a leader, or the whole cluster does not answer: the other stream tells
    other = await api.stream(beside)
    if other.config.get("num_replicas", 1) == 1:
        return False  # the server of the stream may be missing, and nothing of the other one shows it
    return not any(peer.offline or not peer.current for peer in other.cluster.replicas or ())


async def purge(api: Api, subjects: Subjects, spec: StreamSpec, keep_from_seq: int | None, subject: str | None) -> None:
    """Remove messages; see :meth:`berth.runtime.bus.port.Bus.purge`."""
    floor = (await api.stream(subjects.stream(spec.name))).floor if spec.has_floor else 0
    refuse_purge(spec, keep_from_seq, subject, floor=floor)
    what = {"filter": subject} if keep_from_seq is None else {"seq": keep_from_seq}
    await api.purge(subjects.stream(spec.name), what)


async def raise_floor(api: Api, subjects: Subjects, spec: StreamSpec, sequence: int) -> None:
    """Let no message below a sequence count; see :meth:`berth.runtime.bus.port.Bus.raise_floor`."""
    refuse_floor(spec)
    info = await api.stream(subjects.stream(spec.name))
    if info.floor < sequence:
        metadata = {**info.metadata, FLOOR: str(sequence)}
        await api.update_stream({**info.config, "metadata": metadata})


def refuse_floor(spec: StreamSpec) -> None:
    """Check that a stream may have a floor.

    Raises:
        FatalError: The stream may not have a floor.
    """
    if not spec.has_floor:
        raise FatalError(f"{spec.name} has no floor: every message of it counts")


def refuse_purge(spec: StreamSpec, keep_from_seq: int | None, subject: str | None, *, floor: int) -> None:
    """Check that a purge is safe.

    Args:
        spec: The stream.
        keep_from_seq: First sequence to keep, if messages are removed by sequence.
        subject: Whose messages to remove, otherwise.
        floor: The floor of the stream; 0 without.

    Raises:
        FatalError: The purge is not safe.
    """
    is_below_floor = keep_from_seq is not None and keep_from_seq <= floor and subject is None
    if spec.per_subject and not is_below_floor:
        raise FatalError(f"{spec.name} is never purged: an older message of the subject can reappear; overwrite it")
    if spec.name in _FOREVER_KEPT:
        raise FatalError(f"{spec.name} is never purged: messages are removed by age and size only")
    if (keep_from_seq is None) == (subject is None):
        raise FatalError(f"purge of {spec.name} needs keep_from_seq or subject, and not both")


class Keeping(NamedTuple):
    """A stream as the server keeps it.

    Attributes:
        state: Its content.
        replicas: Its replicas.
        max_bytes: Its size limit in bytes; 0 for none.
    """

    state: StreamState
    replicas: int
    max_bytes: int


async def keeping(api: Api, stream: str) -> Keeping | None:
    """A stream as the server keeps it; None if it does not exist.

    Raises:
        TransientError: The server did not answer, or the stream has no leader.
    """
    info = await api.find_stream(stream)
    if info is None:
        return None
    info = of_leader(stream, info)
    state = StreamState(info.first_seq, info.state.last_seq, info.created, info.state.messages, info.floor)
    return Keeping(state, info.config.get("num_replicas", 1), max(info.config.get("max_bytes", 0), 0))


async def delete(api: Api, stream: str) -> None:
    """Delete a stream, if it exists.

    Raises:
        TransientError: The server did not answer.
        PoisonError: The server refuses it.
    """
    if await api.find_stream(stream) is not None:
        await api.delete_stream(stream)


def stream_config(subjects: Subjects, spec: StreamSpec, *, replicas: int, max_bytes: int) -> dict[str, Any]:
    """Settings of a stream in the form of the server, limited to those that Berth controls."""
    is_undeletable = spec.name in _FOREVER_KEPT or spec.mirror_of is not None
    config: dict[str, Any] = {
        "name": subjects.stream(spec.name),
        "retention": "limits",
        "discard": "old",
        "storage": spec.storage,
        "num_replicas": replicas,
        "max_msgs": _UNLIMITED,
        "max_bytes": max_bytes or _UNLIMITED,
        "max_age": spec.max_age_s * _NS,
        "max_msgs_per_subject": spec.per_subject or _UNLIMITED,
        "allow_msg_ttl": spec.allow_ttl,
        "allow_direct": False,  # a direct read may come from a lagging replica
        "deny_delete": is_undeletable,
        "deny_purge": is_undeletable and not spec.has_floor,  # what is below a floor is purged
        "metadata": {FORMAT: str(BASELINE)},
    }
    if spec.is_view and replicas == 1:
        config["persist_mode"] = "async"  # otherwise each message costs a write to disk with sync: always
    if spec.mirror_of is not None:
        config["mirror"] = {"name": subjects.stream(spec.mirror_of)}
    else:
        config["subjects"] = list(spec.subjects)
    return config


def is_pruned(spec: StreamSpec) -> bool:
    """Whether the stream removes messages in normal operation."""
    return bool(spec.per_subject) or spec.name is StreamName.SNAPSHOT


def _is_equal(wanted: object, found: object) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(_is_equal(value, found.get(key)) for key, value in wanted.items())
    return wanted == found or (not wanted and not found)
