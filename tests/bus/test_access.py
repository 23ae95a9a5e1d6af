"""Users, tokens, credentials and TLS against a real server."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace

from berth.cli.cell import Common, connected
from berth.cli.output import CommandError
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.access import access_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import BusConfig, ConfigError
from berth.runtime.errors import FatalError, TransientError
from tests.support.certificates import authority, certificate
from tests.support.nats_keys import operator_with_user

pytestmark = pytest.mark.timeout(40)

USERS = 'authorization { users: [{ user: "berth", password: "s3cret" }] }'


def secret(folder: Path, text: str) -> Path:
    path = folder / f"secret-{text}"
    path.write_text(f"{text}\n")
    return path


@asynccontextmanager
async def opened(server: EmbeddedServer, config: BusConfig) -> AsyncIterator[NatsBus]:
    """A connection with the access of the settings.

    Raises:
        FatalError: The server does not let us in.
    """
    async with await NatsBus.connect(
        server.url,
        config.cell,
        name="test",
        inbox="_INBOX.person.test",
        timeout_s=config.connect_timeout_s,
        access=access_of(config),
    ) as bus:
        yield bus


async def works(server: EmbeddedServer, config: BusConfig) -> bool:
    """Whether a request goes out and its reply comes back."""

    async def echo(data: bytes) -> bytes:
        return data

    async with opened(server, config) as bus:
        await bus.serve("berth.test.echo", echo)
        return await bus.request("berth.test.echo", b"x", timeout_s=5) == b"x"


def on_uvloop(work: Coroutine[None, None, bool]) -> bool:
    """Run on the event loop that services have; their TLS is not that of the standard one."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def refused(server: EmbeddedServer, config: BusConfig) -> str:
    """Words of the refusal, which must come at once and not after the time that a connection may take."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(FatalError) as caught:
        async with opened(server, config):
            pass
    assert loop.time() - began_s < config.connect_timeout_s / 2
    return caught.value.reason


async def test_a_user_gets_in_with_the_right_password_only(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", more=USERS) as server:
        assert await works(server, BusConfig(user="berth", password_file=secret(tmp_path, "s3cret")))
        wrong = BusConfig(user="berth", password_file=secret(tmp_path, "wrong"))
        assert "Authorization Violation" in await refused(server, wrong)
        reason = await refused(server, BusConfig())
        assert "Authorization Violation" in reason or "requires credentials" in reason


async def test_a_server_that_closes_before_it_says_why_is_known_to_ask_for_credentials() -> None:
    async def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.11.0", "auth_required": True, "headers": True, "max_payload": 1_048_576}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(close_at_once, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(CommandError, match=r"rejects the connection \(the server requires credentials") as caught:
            async with connected(Common(url=url)):
                pass
        assert caught.value.code == 2


async def test_a_token_gets_in(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats", more='authorization { token: "s3cret" }') as server:
        assert await works(server, BusConfig(token_file=secret(tmp_path, "s3cret")))
        assert "Authorization Violation" in await refused(server, BusConfig(token_file=secret(tmp_path, "wrong")))


async def test_credentials_get_in(tmp_path: Path) -> None:
    more = operator_with_user(creds := tmp_path / "user.creds")
    operator_with_user(other := tmp_path / "other.creds")
    async with EmbeddedServer(tmp_path / "nats", more=more) as server:
        assert await works(server, BusConfig(creds_file=creds))
        assert "Authorization Violation" in await refused(server, BusConfig(creds_file=other))


async def test_a_server_is_trusted_by_its_certificate(tmp_path: Path) -> None:
    ca, stranger = authority(tmp_path), authority(tmp_path, "stranger")
    own, key = certificate(tmp_path, "server", ca)
    tls = f'tls {{ cert_file: "{own}", key_file: "{key}" }}'
    async with EmbeddedServer(tmp_path / "nats", more=f"{USERS}\n{tls}") as server:
        user = BusConfig(user="berth", password_file=secret(tmp_path, "s3cret"))
        trusting = replace(user, tls_ca_file=ca)
        assert await works(server, trusting)
        assert await asyncio.to_thread(on_uvloop, works(server, trusting))
        assert "not trusted: unable to get local issuer" in await refused(server, replace(user, tls_ca_file=stranger))


async def test_a_certificate_for_another_name_is_refused_unless_its_name_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = authority(tmp_path)
    own, key = certificate(tmp_path, "server", ca, names="DNS:nats-0.nats")
    tls = f'tls {{ cert_file: "{own}", key_file: "{key}" }}'
    async with EmbeddedServer(tmp_path / "nats", more=f"{USERS}\n{tls}") as server:
        user = BusConfig(user="berth", password_file=secret(tmp_path, "s3cret"), tls_ca_file=ca)
        named = replace(user, tls_hostname="nats-0.nats")
        assert await works(server, named), "as through a port-forward"
        assert await asyncio.to_thread(on_uvloop, works(server, named))
        reason = await refused(server, user)
        assert "not trusted: IP address mismatch, certificate is not valid for '127.0.0.1'" in reason
        assert "bus.tls_hostname" in reason
        assert "mismatch" in await refused(server, replace(user, tls_hostname="nats-1.nats"))
        async with opened(server, named) as bus:
            await bus.ensure_streams()
        for name, value in (("USER", "berth"), ("PASSWORD_FILE", str(user.password_file)), ("TLS_CA_FILE", str(ca))):
            monkeypatch.setenv(f"BERTH_BUS__{name}", value)
        common = Common(url=server.url, cell=user.cell)
        with pytest.raises(CommandError, match="BERTH_BUS__TLS_HOSTNAME") as caught:
            async with connected(common):
                pass
        assert caught.value.code == 2
        monkeypatch.setenv("BERTH_BUS__TLS_HOSTNAME", "nats-0.nats")
        async with connected(common) as bus:
            assert bus.connected


async def test_a_client_shows_its_certificate_where_the_server_asks(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    own, key = certificate(tmp_path, "server", ca)
    mine, my_key = certificate(tmp_path, "client", ca)
    tls = f'tls {{ cert_file: "{own}", key_file: "{key}", ca_file: "{ca}", verify: true }}'
    async with EmbeddedServer(tmp_path / "nats", more=tls) as server:
        assert await works(server, BusConfig(tls_ca_file=ca, tls_cert_file=mine, tls_key_file=my_key))
        with pytest.raises((FatalError, TransientError)):
            await works(server, BusConfig(tls_ca_file=ca, connect_timeout_s=1))


async def test_a_server_without_tls_gets_no_secret_when_tls_is_asked_for(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    log = "trace: true"
    async with EmbeddedServer(tmp_path / "nats", more=f"{USERS}\n{log}") as server:
        user = BusConfig(user="berth", password_file=secret(tmp_path, "s3cret"))
        assert "no TLS" in await refused(server, replace(user, tls_ca_file=ca))
        assert "CONNECT" not in server.log_path.read_text()
    async with EmbeddedServer(tmp_path / "open") as server:
        assert "no TLS" in await refused(server, BusConfig(tls_ca_file=ca))


async def test_a_person_gets_in_with_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedServer(tmp_path / "nats", more=USERS) as server:
        me = BusConfig(user="berth", password_file=secret(tmp_path, "s3cret"))
        async with opened(server, me) as bus:
            await bus.ensure_streams()
        common = Common(url=server.url, cell=me.cell)
        with pytest.raises(CommandError, match=r"rejects the connection .*BERTH_BUS__USER") as caught:
            async with connected(common):
                pass
        assert caught.value.code == 2
        monkeypatch.setenv("BERTH_BUS__USER", "berth")
        monkeypatch.setenv("BERTH_BUS__PASSWORD_FILE", str(me.password_file))
        monkeypatch.setenv("BERTH_BUS__URL", "not an address: the option counts")
        async with connected(common) as bus:
            assert bus.connected
        monkeypatch.setenv("BERTH_BUS__REPLICAS", "2")
        with pytest.raises(ConfigError, match=r"setting bus\.replicas"):
            async with connected(common):
                pass


async def test_a_missing_right_ends_the_process_and_is_named(tmp_path: Path) -> None:
    more = (
        'authorization { users: [{ user: "berth", password: "s3cret", permissions: {'
        ' publish: ["_INBOX.person.test.>", "berth.a.intake.>"], subscribe: ["_INBOX.person.test.>"] } }] }'
    )
    config = BusConfig(user="berth", password_file=secret(tmp_path, "s3cret"))
    async with EmbeddedServer(tmp_path / "nats", more=more) as server, opened(server, config) as bus:
        await bus.send("berth.b.intake.request.x.y", b"")
        error = await asyncio.wait_for(asyncio.shield(bus.lost), 10)
        assert "berth.b.intake.request.x.y" in error.reason


@pytest.mark.filterwarnings("ignore:parameter 'timeout'")  # by the client library, which calls aiohttp in an old form
async def test_a_connection_over_websocket_works_although_its_library_is_loaded_for_it_alone(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"ws://127.0.0.1:{port}"
    async with (
        EmbeddedServer(tmp_path / "nats", more=f"websocket {{ port: {port}, no_tls: true }}"),
        await NatsBus.connect(url, "cell", name="test", inbox="_INBOX.person.test", timeout_s=10) as bus,
    ):

        async def echo(data: bytes) -> bytes:
            return data

        await bus.serve("berth.test.echo", echo)
        assert await bus.request("berth.test.echo", b"x", timeout_s=5) == b"x"
