"""What is seen of a cell under load every few seconds, and how it is stored: a line of JSON each."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.report import Machine
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName

_KIB: Final = 1024
_ANSWER_S: Final = 30.0
WATCHED: Final = (
    StreamName.INTAKE,
    StreamName.FACTS,
    StreamName.LATEST,
    StreamName.LEDGER,
    StreamName.SNAPSHOT,
    StreamName.STATUS,
)
"""Streams that grow with jobs."""


class ProcessSample(msgspec.Struct, frozen=True):
    """Memory of a process in MiB, and its CPU seconds since its start."""

    pss_mib: float
    rss_mib: float
    cpu_s: float


class StreamSample(msgspec.Struct, frozen=True):
    """Content of a stream, and how far its slowest consumer is behind, in messages."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumers: int
    lag: int


class Latency(msgspec.Struct, frozen=True):
    """From the time at which a job was due to be submitted to its placement, in ms, of the jobs placed meanwhile."""

    jobs: int
    p50_ms: float
    p99_ms: float
    most_ms: float


class Sample(msgspec.Struct, frozen=True):
    """A cell at a time, in seconds after the load began; numbers of jobs and messages are those since its start."""

    at_s: float
    submitted: int
    placed: int
    failed: int
    """Messages that the server did not store."""
    refused: int
    """Times that a job found no room; it waits then."""
    latency: Latency
    processes: dict[str, ProcessSample]
    streams: dict[str, StreamSample]
    snapshots: int
    snapshot_seq: int
    """Sequence of the ledger up to which the newest snapshot goes; 0 without one."""


class Course(msgspec.Struct, frozen=True):
    """A load: its settings, and its samples in order of time."""

    machine: Machine
    settings: dict[str, float]
    measured_rate: float
    """Jobs a second that were placed when as many were submitted as were placed."""
    rate: float
    """Jobs a second that were then submitted."""
    samples: list[Sample] = []


class CourseFile:
    """A file of a course: the course without samples, then a sample a line. Written as it goes."""

    def __init__(self, path: Path, course: Course) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(course) + b"\n")

    def add(self, sample: Sample) -> None:
        """Append a sample."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(sample) + b"\n")


def read_course(path: Path) -> Course:
    """Read what a :class:`CourseFile` wrote; a last line that is not whole is left out.

    Raises:
        ValueError: The file is not of this form, or has no sample.
    """
    first, *rest = path.read_bytes().split(b"\n")
    course = msgspec.json.decode(first, type=Course)
    course = msgspec.structs.replace(course, samples=[msgspec.json.decode(line, type=Sample) for line in rest[:-1]])
    if not course.samples:
        raise ValueError(f"{path} has no sample")
    return course


def process_sample(pid: int) -> ProcessSample:
    """Memory and CPU of a process."""
    amounts: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, _, rest = line.partition(":")
        amounts[name] = int(rest.split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / 100  # USER_HZ, which is 100 for every program
    return ProcessSample(amounts["Pss"] / _KIB, amounts["Rss"] / _KIB, cpu_s)


async def stream_samples(bus: NatsBus) -> dict[str, StreamSample]:
    """The streams that grow with jobs."""
    found = {}
    for name in WATCHED:
        stream = bus.subjects.stream(name)
        state = (await ask(bus, f"STREAM.INFO.{stream}"))["state"]
        listed = (await ask(bus, f"CONSUMER.LIST.{stream}")).get("consumers") or []
        found[name.value] = StreamSample(
            messages=state["messages"],
            bytes=state["bytes"],
            first_seq=state["first_seq"],
            last_seq=state["last_seq"],
            consumers=len(listed),
            lag=max((one["num_pending"] + one["num_ack_pending"] for one in listed), default=0),
        )
    return found


async def stored_snapshots(bus: NatsBus) -> list[int]:
    """Sequences of the ledger of all whole snapshots, ascending."""
    wanted = {"subjects_filter": f"{bus.subjects.root}snapshot.*.end"}
    answer = await ask(bus, f"STREAM.INFO.{bus.subjects.stream(StreamName.SNAPSHOT)}", wanted)
    return sorted(int(subject.split(".")[-2]) for subject in answer["state"].get("subjects") or {})


async def ask(bus: NatsBus, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Ask the JetStream API.

    Raises:
        RuntimeError: The server refuses.
    """
    data = b"" if body is None else msgspec.json.encode(body)
    answer: dict[str, Any] = msgspec.json.decode(await bus.request(f"$JS.API.{verb}", data, timeout_s=_ANSWER_S))
    if "error" in answer:
        raise RuntimeError(f"{verb}: {answer['error']}")
    return answer


async def sample_of(
    bus: NatsBus, pids: Mapping[str, int]
) -> tuple[dict[str, ProcessSample], dict[str, StreamSample], list[int]]:
    """Processes, streams and snapshots now."""
    processes = {name: await asyncio.to_thread(process_sample, pid) for name, pid in pids.items()}
    return processes, await stream_samples(bus), await stored_snapshots(bus)
