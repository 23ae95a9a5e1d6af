"""Networks that are cut in one direction and in both, and proxies that delay, stop, lose and cut."""

import subprocess
import sys
from typing import Final

import pytest

from tests.support.processes import ROOT

STORY: Final = """
import asyncio
from random import Random

from tests.chaos.network import Network, isolate

isolate()

from tests.chaos.proxy import Proxy, Weather
from tests.support.waiting import until

TELL_S = 0.3


async def main():
    with Network() as network:
        one, other = network.host("one"), network.host("other")
        heard = []

        async def serve(reader, writer):
            while line := await reader.readline():
                heard.append(line)
                writer.write(b"answer to " + line)

        listening = other.socket()
        listening.bind((other.address, 4000))
        server = await asyncio.start_server(serve, sock=listening)
        proxy = Proxy(other, 5000, 4000, Random(1))
        await proxy.start()

        async def dial(port):
            socket = one.socket()
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(socket, (other.address, port)), 5)
            return await asyncio.open_connection(sock=socket)

        async def ask(pair, line, wait_s=20.0):
            pair[1].write(line)
            try:
                return await asyncio.wait_for(pair[0].readline(), wait_s)
            except TimeoutError:
                return b"nothing"
            except ConnectionError:
                return b""

        direct, through = await dial(4000), await dial(5000)
        assert await ask(direct, b"1\\n") == b"answer to 1\\n"
        assert await ask(through, b"2\\n") == b"answer to 2\\n"

        # What is sent is lost; what comes back would come.
        network.cut("one", "other")
        assert network.cuts == {("one", "other")}
        assert await ask(direct, b"3\\n", TELL_S) == b"nothing"
        assert heard == [b"1\\n", b"2\\n"]
        network.heal("one", "other")
        assert await asyncio.wait_for(direct[0].readline(), 30) == b"answer to 3\\n"

        # What is sent arrives; what comes back is lost.
        network.cut("other", "one")
        assert await ask(direct, b"4\\n", TELL_S) == b"nothing"
        await until(lambda: heard[-1] == b"4\\n", deadline_s=5, what="the request arrives")
        network.cut("one", "other")
        assert await ask(direct, b"5\\n", TELL_S) == b"nothing"
        assert heard[-1] == b"4\\n"
        for pair in list(network.cuts):
            network.heal(*pair)
        assert await asyncio.wait_for(direct[0].readline(), 30) == b"answer to 4\\n"
        assert await asyncio.wait_for(direct[0].readline(), 30) == b"answer to 5\\n"

        loop = asyncio.get_running_loop()
        proxy.up = Weather(delay_s=0.3)
        began = loop.time()
        assert await ask(through, b"6\\n") == b"answer to 6\\n"
        assert loop.time() - began >= 0.3 and proxy.counts.delayed
        proxy.clear()

        proxy.down = Weather(is_stopped=True)
        assert await ask(through, b"7\\n", TELL_S) == b"nothing"
        await until(lambda: heard[-1] == b"7\\n", deadline_s=5, what="the request arrives")
        proxy.clear()
        assert await asyncio.wait_for(through[0].readline(), 20) == b"answer to 7\\n"

        proxy.up = Weather(is_lossy=True)
        assert await ask(through, b"8\\n", TELL_S) == b"nothing"
        await until(lambda: proxy.counts.lost, deadline_s=5, what="something is lost")
        proxy.clear()  # a connection that has lost something ends
        assert await asyncio.wait_for(through[0].read(), 20) in {b"", b"never"}
        assert b"8\\n" not in heard

        third = await dial(5000)
        assert await ask(third, b"9\\n") == b"answer to 9\\n"
        assert proxy.live == 1
        proxy.is_closed = True
        assert proxy.cut() == 1
        assert await ask(third, b"10\\n") == b""
        fourth = await dial(5000)
        assert await ask(fourth, b"11\\n") == b""
        proxy.clear()
        fifth = await dial(5000)
        assert await ask(fifth, b"12\\n") == b"answer to 12\\n"
        for pair in (direct, fifth):
            pair[1].transport.abort()
        await proxy.stop()
        server.close()


asyncio.run(main())
print("all of it happened")
"""
OUTSIDE: Final = """
from pathlib import Path
from tests.chaos.network import Network, isolate
before = Path("/proc/self/ns/net").readlink()
isolate()
assert Path("/proc/self/ns/net").readlink() != before
with Network() as network:
    network.host("one")
    network.host("two")
    interfaces = Path("/proc/self/net/dev").read_text()
    assert "v1:" in interfaces and "v2:" in interfaces, interfaces
print("apart")
"""


def ended_well(program: str) -> str:
    done = subprocess.run(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(60)
def test_networks_and_proxies_break_as_they_say() -> None:
    assert ended_well(STORY) == "all of it happened\n"


def test_hosts_are_in_a_network_that_nobody_else_sees() -> None:
    with open("/proc/self/net/dev") as file:  # noqa: PTH123  # a file of the kernel
        before = file.read()
    assert ended_well(OUTSIDE) == "apart\n"
    with open("/proc/self/net/dev") as file:  # noqa: PTH123  # likewise
        after = file.read()
    assert [line.split(":")[0] for line in before.splitlines()] == [line.split(":")[0] for line in after.splitlines()]
