"""Types that several threads decode for the first time at once."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROUNDS = """
import importlib.util, msgspec, pathlib, sys, threading
from berth.schemas.message import json_decoder, msgpack_decoder

sys.setswitchinterval(1e-6)

def at_once(work):
    gate = threading.Barrier(3)
    found = []
    def one():
        gate.wait()
        found.append(work())
    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and found[0] == found[1] == found[2] is not None, found

def a_type():
    class Inner(msgspec.Struct):
        a: "int | None" = None
        b: "dict[str, list[int]] | None" = None
    class Outer(msgspec.Struct):
        x: Inner | None = None
        y: "str" = ""
        z: "list[str]" = []
    return Outer

TREE = {"x": {"a": 1, "b": {"k": [1]}}, "y": "s", "z": ["1"]}
"""
_OF_WORK = {
    "json": """
text = msgspec.json.encode(TREE)
for _ in range(600):
    kind = a_type()
    at_once(lambda: json_decoder(kind).decode(text))
""",
    "msgpack": """
text = msgspec.msgpack.encode(TREE)
for _ in range(600):
    kind = a_type()
    at_once(lambda: msgpack_decoder(kind).decode(text))
""",
    "kubeconfig": """
import yaml
spec = importlib.util.find_spec("berth.runtime.kube.plain_kubeconfig")
for _ in range(150):
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    at_once(lambda: module.read_plain(sys.argv[1], ""))
""",
}
_KUBECONFIG = """
clusters: [{name: c, cluster: {server: "https://host"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
current-context: here
"""


@pytest.mark.parametrize("what", sorted(_OF_WORK))
def test_threads_decode_a_type_for_the_first_time_at_once(what: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(_KUBECONFIG)
    command = [sys.executable, "-c", _ROUNDS + _OF_WORK[what], str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own interpreter and words
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stderr}"
