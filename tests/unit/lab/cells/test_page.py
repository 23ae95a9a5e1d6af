"""The gateway of ``berth up``: its port, its token, and its settings as the service reads them."""

import socket
import tomllib
from pathlib import Path

import msgspec
import pytest

from berth.cli.output import WRONG_USE, CommandError
from berth.lab.cells.page import HOST, PORT, LocalPage, missing_libraries, page_in
from berth.lab.cells.processes import toml
from berth.lab.servers.ports import free_ports
from berth.services.gateway.config import GatewayConfig, check
from berth.services.gateway.tokens import Tokens
from tests.support.clock import ManualClock


def test_a_folder_keeps_its_token_for_its_owner_alone(tmp_path: Path) -> None:
    first = page_in(tmp_path / "new", 0)
    assert first.token.startswith("berth_")
    (file,) = (tmp_path / "new").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    again = page_in(tmp_path / "new", None)
    assert again.token == first.token
    assert page_in(tmp_path / "other", 0).token != first.token
    assert first.url == f"http://{HOST}:{first.port}/"


def test_a_port_in_use_is_named_unless_it_is_the_usual_one(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port} is in use; name another with --page-port"):
            page_in(tmp_path, port)
    assert page_in(tmp_path, port).port == port
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, PORT))
        except OSError:
            pass  # another process has it
        else:
            taken.listen()
        assert page_in(tmp_path, None).port != PORT


def test_the_port_of_nats_is_not_that_of_the_page(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with pytest.raises(CommandError, match=f"--page-port is {port}, expected another port than --port") as caught:
        page_in(tmp_path, port, nats_port=port)
    assert caught.value.code == WRONG_USE
    assert page_in(tmp_path, None, nats_port=PORT).port != PORT
    assert page_in(tmp_path, port, nats_port=PORT).port == port


def test_a_folder_that_cannot_be_made_is_a_wrong_setting() -> None:
    with pytest.raises(CommandError, match="cannot store /proc/berth: ") as caught:
        page_in(Path("/proc/berth"), 0)
    assert caught.value.code == WRONG_USE


def test_the_gateway_accepts_the_token_of_the_page() -> None:
    page = LocalPage(8_222, "berth_x")
    config = msgspec.convert(tomllib.loads(toml(page.settings)), GatewayConfig)
    check(config)
    assert (config.host, config.port, config.access) == (HOST, 8_222, "token")
    assert Tokens(config.tokens, ManualClock()).caller("Bearer berth_x").identity == "page"


def test_this_installation_has_the_libraries() -> None:
    assert missing_libraries() == ""
