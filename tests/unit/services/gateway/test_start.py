"""Start of the gateway: what ends it before it listens."""

import asyncio
import resource
import sys
from pathlib import Path

import pytest

from berth.runtime.config import ConfigError
from berth.runtime.errors import FatalError
from berth.runtime.instruments import Instruments
from berth.services.gateway.app import serve
from berth.services.gateway.config import GatewayConfig, PageLink, check
from berth.services.gateway.extender_config import ExtenderConfig, check_extender
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.server import listen, raise_file_limit
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer


async def started(config: GatewayConfig) -> None:
    """Start a gateway, which must end by itself."""
    instruments = Instruments.make(GatewayMetrics)
    await serve(FakeBus(FakeServer(), "x"), ManualClock(), config, instruments, asyncio.Event())


async def test_without_its_libraries_it_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "berth.services.gateway.serving", None)
    with pytest.raises(FatalError, match=r"needs starlette and uvicorn: pip install 'berth-npu\[gateway\]'"):
        await started(GatewayConfig())


async def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            FatalError, match=f"setting port is {port}: cannot listen on 127.0.0.1:{port}: Address already"
        ):
            await started(GatewayConfig(port=port))


def test_an_extender_that_everybody_may_call_has_no_authority_of_clients() -> None:
    check_extender(ExtenderConfig(port=1, access="network"))
    with pytest.raises(ConfigError, match="client_ca_file"):
        check_extender(ExtenderConfig(port=1, access="network", client_ca_file=Path("ca.pem")))


def test_the_limit_of_files_is_raised_as_far_as_the_system_permits() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert 0 < raise_file_limit(100) <= 100
        assert raise_file_limit(1_000_000_000) < 1_000_000_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "url",
    [
        "https://grafana.example/d/npu?var-node={node}",
        "http://logs.example:3100/{namespace}/{job}/{pod}#tail",
        "https://logs.example?q=%7B{job}%7D",
    ],
)
def test_links_of_the_page_are_templates_of_addresses(url: str) -> None:
    check(GatewayConfig(links=[PageLink(name="Logs", url=url)]))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("javascript:alert({job})", "expected http:// or https://"),
        ("//logs.example/{job}", "expected http:// or https://"),
        ("https:/logs.example/{job}", "expected http:// or https://"),
        ("https://{job}.example/", "a host without names in braces"),
        ("https://logs.example:{job}/", "a host without names in braces"),
        ("https://logs.example{job}/", "a host without names in braces"),
        ("https://user:secret@logs.example/{job}", "a host without names in braces"),
        ("https://logs.example/a b/{job}", "a path without spaces"),
        ("https://logs.example/{job}\n", "a path without spaces"),
        ("https://logs.example/{uid}", "expected no other braces than those of {namespace}, {job}, {pod}, {node}"),
        ("https://logs.example/{job", "expected no other braces"),
        ("https://logs.example/", "expected {namespace}, {job}, {pod} or {node} in it"),
    ],
)
def test_a_link_that_leads_nowhere_is_named_by_its_field(url: str, expected: str) -> None:
    links = [PageLink(name="Good", url="https://a.example/{job}"), PageLink(name="Logs", url=url)]
    with pytest.raises(ConfigError) as caught:
        check(GatewayConfig(links=links))
    assert caught.value.field == "links[1].url"
    assert expected in caught.value.expected
