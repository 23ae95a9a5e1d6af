"""The page beside real services: a job is submitted over HTTP and seen; NATS is killed and comes back."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest
from playwright.sync_api import Error, Page, expect

from berth.lab.servers.nats_server import EmbeddedServer
from tests.page.browser import violations
from tests.page.conftest import Open
from tests.support.gateways import free_port
from tests.support.processes import ROOT, services
from tests.support.programs import job_file
from tests.support.waiting import SLACK

CLUSTER: Final = ROOT / "docs" / "examples" / "cluster.yaml"
CELL: Final = "page"
PRODUCT: Final = "module910bx8"
SERVICES: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 0},
    "binder": {},
    "nodesim": {"topology_file": str(CLUSTER)},
    "api": {},
}
_SOON_MS: Final = 30_000 * SLACK
_CALL_S: Final = 30 * SLACK
Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own: that of this thread belongs to the browser."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    def end(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()


class RealCell(NamedTuple):
    """A cell whose gateway serves the page."""

    url: str
    server: EmbeddedServer
    loop: Loop


@contextmanager
def running(folder: Path) -> Iterator[RealCell]:
    with ExitStack() as stack:
        loop = Loop()
        stack.callback(loop.end)
        server = EmbeddedServer(folder / "nats")
        loop.call(server.start())
        stack.callback(lambda: loop.call(server.stop()))
        port = free_port()
        made = stack.enter_context(services(folder, server.url))
        for name, settings in (SERVICES | {"gateway": {"access": "open", "port": port}}).items():
            made.service(name, CELL, **settings).start()
        yield RealCell(f"http://127.0.0.1:{port}/", server, loop)


def answering(page: Page, cell: RealCell) -> None:
    """Wait until the gateway answers.

    The browser does not ask: it opens a page about the refused connection, and if that is still on its way at the
    next try, the try ends.

    Raises:
        Error: The gateway did not listen in time.
    """
    for again in reversed(range(int(_SOON_MS / 250))):
        try:
            page.request.get(cell.url)
        except Error as error:  # nobody listens yet
            if "ECONNREFUSED" not in str(error) or not again:
                raise
            page.wait_for_timeout(250)
        else:
            break


def shown(page: Page, cell: RealCell) -> None:
    """Open the page as soon as the gateway answers."""
    answering(page, cell)
    page.goto(cell.url)
    expect(page.locator("#connection")).to_have_text("Live", timeout=_SOON_MS)
    expect(page.locator(".figures")).to_contain_text("chips in use", timeout=_SOON_MS)


def submit(page: Page, cell: RealCell, name: str, **spec: Any) -> None:  # noqa: ANN401  # fields of a job file
    """Submit a job over HTTP, again while the gateway cannot reach the cell; its uid is its key.

    Raises:
        AssertionError: It was not stored in time.
    """
    for _ in range(int(_SOON_MS / 500)):
        answer = page.request.post(f"{cell.url}api/v1/jobs", data=job_file(name, uid=f"uid-{name}", **spec))
        if answer.status in {200, 201}:
            return
        assert answer.status in {503, 504}, answer.text()
        page.wait_for_timeout(500)
    raise AssertionError(f"{name} was not stored")


def acted(page: Page, cell: RealCell) -> None:
    """Cancel a job that waits, and drain a node."""
    content = page.locator("#content")
    page.goto(f"{cell.url}#/job/team/large-7")
    expect(content).to_contain_text("nodes could take a pod of task worker now", timeout=_SOON_MS)
    page.get_by_role("button", name="Cancel the job …").click()
    page.get_by_role("button", name="Cancel the job", exact=True).click()
    expect(page.locator("#done")).to_have_text("The cancellation of team/large-7 is stored.", timeout=_SOON_MS)
    expect(content.locator(".job-head")).to_contain_text("cancelled", timeout=_SOON_MS)
    page.goto(f"{cell.url}#/node/a2-001")
    page.get_by_role("button", name="Drain the node …").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    expect(content).to_contain_text("Node a2-001 is drained since", timeout=_SOON_MS)


@pytest.mark.timeout(240)
def test_jobs_of_a_real_cell_are_seen_also_after_a_restart_of_nats(
    open_page: Open, tmp_path: Path, allowed: list[str], axe: str
) -> None:
    allowed += ["net::ERR_", "503", "404", "504"]
    with running(tmp_path) as cell:
        page = open_page("about:blank")
        shown(page, cell)
        submit(page, cell, "first", product=PRODUCT, replicas=2, chips=8, runFor="1h")
        page.goto(f"{cell.url}#/job/team/first")
        content = page.locator("#content")
        expect(content.locator(".job-head")).to_contain_text("running", timeout=_SOON_MS)
        expect(content.locator(".timeline")).to_contain_text("Placed", timeout=_SOON_MS)
        expect(content.get_by_role("table", name="Places of first")).to_contain_text("0-7")
        expect(content.get_by_role("table", name="Places of first").locator("tbody tr")).to_have_count(2)
        expect(content.locator(".why li").first).to_be_visible(timeout=_SOON_MS)
        for number in range(8):
            submit(page, cell, f"large-{number}", product=PRODUCT, replicas=3, chips=8, runFor="1h")
        page.goto(f"{cell.url}#/queue")
        expect(page.locator("ol.cards li").first).to_be_visible(timeout=_SOON_MS)
        expect(page.locator("ol.cards .sentence").first).not_to_be_empty()
        acted(page, cell)
        page.goto(f"{cell.url}#/")
        hour = page.get_by_role("region", name="What changed in the last hour")
        expect(hour.locator(".feed")).to_contain_text("placed team/first", timeout=_SOON_MS)
        expect(hour.get_by_role("img").first).to_be_visible()
        page.goto(f"{cell.url}#/faults")
        expect(content).to_contain_text("a2-003", timeout=_SOON_MS)
        page.goto(f"{cell.url}#/services")
        for service in ("dispatcher", "binder", "api", "gateway", "FACTS"):
            expect(content).to_contain_text(service, timeout=_SOON_MS)
        assert violations(page, axe) == []
        page.goto(f"{cell.url}#/dead")
        expect(content).to_have_text("There are no dead letters.", timeout=_SOON_MS)

        page.goto(f"{cell.url}#/jobs")
        cell.loop.call(cell.server.kill())
        cell.loop.call(cell.server.start())
        submit(page, cell, "after-the-restart", product="310p-duo", chips=1, runFor="1h")
        expect(content.get_by_text("after-the-restart")).to_be_visible(timeout=2 * _SOON_MS)
        page.goto(f"{cell.url}#/job/team/after-the-restart")
        expect(content.locator(".job-head")).to_contain_text("running", timeout=2 * _SOON_MS)
