"""Decoders of files and requests from outside the cluster: YAML, traces, recordings, settings, kubeconfigs, HTTP."""

import asyncio
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, Self

from berth.cli.output import CommandError
from berth.cli.simulation.decision_settings import settings_text, settings_with
from berth.cli.simulation.fault_options import faults_of, faults_text
from berth.cli.simulation.trace_input import read_workload
from berth.core.queues.tree import tree_of
from berth.core.replay.log_clock import LogClock
from berth.core.state.ledger import LedgerDump
from berth.formats.clusters.cluster_text import ClusterTextError, chips_of, default_cluster, offered_load, read_cluster
from berth.formats.clusters.topology_file import TopologyError, parse_cluster
from berth.formats.manifests.gang_request import ManifestError
from berth.formats.manifests.reader import parse_jobs, read_jobs
from berth.formats.manifests.writer import write_ascend_job, write_batch_job, write_volcano_job
from berth.formats.quantities import QuantityError, cpu_milli, duration_ms, go_duration_s, memory_mib, pieces
from berth.formats.queues.reader import read_queues
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.backup import BackupFrames, BackupReading
from berth.formats.recordings.recording import RecordingError, frames_of, interleaved, read
from berth.formats.traces.jobs import kubernetes_name
from berth.formats.traces.reader import TraceError, read_trace
from berth.formats.yaml_documents import read_documents
from berth.formats.yaml_tree import DocumentError
from berth.runtime.config import ConfigError, load
from berth.runtime.kube.plain_kubeconfig import read_plain
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.probes import Readiness, ServicePages, _Server
from berth.schemas.chain import position_of
from berth.schemas.envelope import DecodeError, VersionError, encode
from berth.schemas.ledger import Settings
from berth.schemas.recording import BackupHead, BackupStream, Entry
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.health.config import HealthConfig
from berth.services.inventory.config import InventoryConfig
from tests.decoders.decoder import Decoder
from tests.decoders.messages import RECORDINGS
from tests.decoders.reports import NotTextError, text_of_input

CLUSTER: Final = "nodes=4,leaf=2"


def stored_in(data: bytes, read_file: Callable[[Path], object]) -> None:
    """Read an input as a file."""
    with tempfile.TemporaryDirectory(prefix="berth-decoder-") as folder:
        path = Path(folder, "input")
        path.write_bytes(data)
        read_file(path)


def read_yaml(data: bytes) -> None:
    """Documents of a YAML text."""
    for tree in read_documents(text_of_input(data), DocumentError):
        str(tree.wrong("something else"))


def read_manifest(data: bytes) -> None:
    """Jobs of a manifest, which are written to the bus and as manifests again.

    Raises:
        ManifestError: The first error.
    """
    text = text_of_input(data)
    reading = read_jobs(text)
    for error in reading.errors:
        str(error).encode()
    for job in reading.jobs:
        encode(job)
        for write in (write_volcano_job, write_ascend_job, write_batch_job):
            try:
                write(job)
            except ValueError as error:
                str(error).encode()
    parse_jobs(text)


def read_queue_file(data: bytes) -> None:
    """Queues, and their tree with whatever is wrong.

    Raises:
        DocumentError: The first error.
    """
    reading = read_queues(text_of_input(data))
    tree = tree_of(reading.queues)
    for text in (*tree.broken.values(), *map(str, reading.errors)):
        text.encode()
    for error in reading.errors:
        raise error


def read_topology(data: bytes) -> None:
    """Topology file."""
    parse_cluster(text_of_input(data))


def read_cluster_text(data: bytes) -> None:
    """Text of a cluster."""
    plan = read_cluster(text_of_input(data))
    encode_nodes = [node.name.encode() for node in plan.nodes]
    assert encode_nodes, "a cluster without nodes was accepted"


def read_trace_lines(data: bytes) -> None:
    """Trace, strict and not, and the cluster for its jobs."""
    lines = text_of_input(data).splitlines(keepends=True)
    workload = read_trace(lines, strict=True)
    read_trace(lines)
    for job in workload.jobs:
        encode(job.request)
        chips_of(job)
        kubernetes_name(job.request.name)
    try:
        offered_load(workload, read_cluster(default_cluster(workload)).nodes if len(workload.jobs) < 50 else [])
    except ClusterTextError as error:
        str(error).encode()


def read_trace_file(data: bytes) -> None:
    """Trace in a file, packed or not, as the command reads it."""
    stored_in(data, lambda path: read_workload(path, product="module910bx8", compress=1, declare=None, affinity="all"))


def read_recording(data: bytes) -> None:
    """Recording, in pieces, with its clock; what can be salvaged of it.

    Raises:
        RecordingError: It is damaged.
    """
    pieces_of = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    for salvage in (True, False):
        clock = LogClock()
        try:
            for entry in read(pieces_of, salvage=salvage):
                clock.moment_of(entry)
        except VersionError:
            return  # a damaged version cannot be told from that of a newer release


def read_backup(data: bytes) -> None:
    """Backup, in pieces.

    Raises:
        RecordingError: It is damaged.
    """
    for _ in BackupReading(data[at : at + 1000] for at in range(0, len(data), 1000)):
        pass


def small_backups() -> dict[str, bytes]:
    """Backups with and without messages."""
    head = BackupHead("0.5.0", "cell", 1, [BackupStream("LEDGER", 1, 2), BackupStream("FACTS", 1, 0)])
    found = {}
    for count in (0, 2):
        frames = BackupFrames(head)
        parts = [frames.add("LEDGER", Entry(number, b"record", "ledger")) for number in range(1, count + 1)]
        found[f"backup-{count}"] = b"".join([frames.begin(), *parts, frames.end()])
    return found


def anonymise(data: bytes) -> None:
    """Recording without its names.

    Raises:
        RecordingError: It is damaged.
    """
    reading = read([data])
    entries = list(reading)
    anonymiser = Anonymiser(reading.head, LedgerDump)
    for entry in entries:
        anonymiser.learn(entry)
    anonymiser.settle()
    made = [anonymiser.entry(entry) for entry in entries]
    facts, records = [one for one in made if one.subject], [one for one in made if not one.subject]
    head = anonymiser.head()
    b"".join(frames_of(head, interleaved(facts, records, position_of(head.start))))


def read_quantities(data: bytes) -> None:
    """Quantity in all units, and durations. An input that all refuse is refused.

    Raises:
        QuantityError: All refuse it.
    """
    text = text_of_input(data)
    refused: QuantityError | None = None
    of_numbers = (cpu_milli, memory_mib, pieces, duration_ms)
    for convert in (*of_numbers, go_duration_s):
        for value in (text, *(_numbers(text) if convert in of_numbers else ())):
            try:
                convert(value)
            except QuantityError as error:
                str(error).encode("utf-8", "surrogatepass")
                refused = error
    if refused is not None:
        raise refused


def _numbers(text: str) -> list[float | int]:
    """Numbers that YAML or JSON may make of a text."""
    found: list[float | int] = []
    for make in (int, float):
        try:
            found.append(make(text))
        except ValueError:
            continue
    digits = "".join(char for char in text if char.isascii() and char.isdigit())
    if digits:
        found.append(int(digits[:4_000]) << 20_000)
    return found


def read_settings(data: bytes) -> None:
    """Settings of services in a file."""
    for config in (DispatcherConfig, HealthConfig, InventoryConfig):
        stored_in(data, lambda path, config=config: load(config, path, {}))  # type: ignore[misc]  # bound at once


def read_environment(data: bytes) -> None:
    """Settings of a service in the environment: lines of ``NAME=value``."""
    lines = data.decode(errors="surrogateescape").replace("\x00", "").split("\n")
    environ = {f"BERTH_{name}": value for name, equals, value in (line.partition("=") for line in lines) if equals}
    load(DispatcherConfig, None, environ)


def read_decision_settings(data: bytes) -> None:
    """Settings on the command line."""
    pairs = text_of_input(data).split("\n")
    settings_text(settings_with(Settings(), pairs))


def read_fault_options(data: bytes) -> None:
    """Failures on the command line."""
    faults_text(faults_of(text_of_input(data), _cluster()))


@cache
def _cluster():  # type: ignore[no-untyped-def]  # noqa: ANN202 - a plan of the simulation
    return read_cluster(CLUSTER)


def read_kubeconfig(data: bytes) -> None:
    """Kubeconfig; what is not read without doubt is left to the library, and counts as refused.

    Raises:
        NotTextError: It is left to the library.
    """

    def plain(path: Path) -> None:
        found = read_plain(str(path), "")
        if found is None:
            raise NotTextError("left to the library")
        with found.files():
            pass

    stored_in(data, plain)


def answer_probe(data: bytes) -> None:
    """Requests to the probe server, over its stream.

    Raises:
        ConnectionError: The connection is closed without an answer.
    """
    if not _answers(data):
        raise ConnectionError("closed without an answer")


def _answers(data: bytes) -> bytes:
    return asyncio.run(_talk(data))


async def _talk(data: bytes) -> bytes:
    server = _Server(ServicePages(Readiness(), MetricsRegistry()))
    reader = asyncio.StreamReader(limit=8 << 10)
    reader.feed_data(data)
    reader.feed_eof()
    written = bytearray()

    class Writer:
        def write(self, more: bytes) -> None:
            written.extend(more)

        def close(self) -> None: ...

        async def wait_closed(self) -> None: ...

        def abort(self) -> None: ...

        @property
        def transport(self) -> Self:
            return self

    await server._serve(reader, Writer())  # type: ignore[arg-type]  # as much of a writer as is used
    assert bytes(written[:9]) in {b"", b"HTTP/1.1 "}, "not an answer of HTTP"
    return bytes(written)


def small_recordings() -> dict[str, bytes]:
    """Small recordings of all releases."""
    found = {f"{path.parent.name}-{path.name}": path.read_bytes() for path in sorted(RECORDINGS.glob("*/*.berthlog"))}
    return {name: data for name, data in found.items() if len(data) < 12_000}


DECODERS: Final = (
    Decoder("yaml", read_yaml, (DocumentError, NotTextError)),
    Decoder("manifest", read_manifest, (ManifestError, NotTextError), echoes=True),
    Decoder("queues", read_queue_file, (DocumentError, NotTextError), echoes=True),
    Decoder("topology", read_topology, (TopologyError, NotTextError), cpu_s=60, memory_bytes=1 << 30),
    Decoder("cluster-text", read_cluster_text, (ClusterTextError, TopologyError, NotTextError), cpu_s=60, echoes=True),
    Decoder("trace", read_trace_lines, (TraceError, NotTextError), echoes=True),
    Decoder("trace-file", read_trace_file, (CommandError,), "bytes", echoes=True),
    Decoder("recording", read_recording, (RecordingError,), "bytes", small_recordings),
    Decoder("backup", read_backup, (RecordingError,), "bytes", small_backups),
    Decoder("anonymisation", anonymise, (RecordingError, DecodeError, VersionError), "bytes", small_recordings),
    Decoder("quantity", read_quantities, (QuantityError, NotTextError)),
    Decoder("settings", read_settings, (ConfigError,)),
    Decoder("environment", read_environment, (ConfigError,)),
    Decoder("decision-settings", read_decision_settings, (CommandError, NotTextError), echoes=True),
    Decoder("fault-options", read_fault_options, (CommandError, NotTextError), echoes=True),
    Decoder("kubeconfig", read_kubeconfig, (NotTextError,)),
    Decoder("probe", answer_probe, (ConnectionError,), "bytes"),
)
