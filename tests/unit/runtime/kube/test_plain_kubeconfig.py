"""Kubeconfigs that are read without the client library: the same as with it, and never with a plug-in."""

import asyncio
import json
import subprocess
import sys
from base64 import standard_b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_kube_config

from berth.runtime.kube.plain_kubeconfig import read_plain

PEM = b"-----BEGIN CERTIFICATE-----\n"
ENCODED = standard_b64encode(PEM).decode("ascii")
OTHERS: dict[str, Any] = {
    "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"},
    "username": "admin",
    "auth-provider": {"name": "oidc", "config": {}},
    "as": "somebody",
}


def written(folder: Path, cluster: object, user: object, **more: object) -> str:
    """Path of a kubeconfig in a folder with the files that it may name."""
    for name in ("ca.pem", "user.pem", "key.pem"):
        (folder / name).write_bytes(PEM)
    (folder / "token").write_text("from-file\n", "utf-8")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}, {"name": "other", "cluster": {"server": "https://other"}}],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": OTHERS}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "here",
        **more,
    }
    path = folder / "config"
    path.write_text(json.dumps(config), "utf-8")
    return str(path)


def by_library(path: str) -> tuple[object, ...]:
    """What the library reads: address, header, contents of the files, whether they are checked, name of the server."""
    loaded = Configuration(host="")
    asyncio.run(load_kube_config(config_file=path, client_configuration=loaded, persist_config=False))
    files = (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file)
    return (
        loaded.host,
        str(loaded.api_key.get("BearerToken", "")).strip(),
        [Path(file).read_bytes() if file else None for file in files],
        loaded.verify_ssl,
        loaded.tls_server_name or "",
    )


def a_pem(name: str, file: str) -> st.SearchStrategy[dict[str, str]]:
    """Fields of a certificate or key: none, a file, its text, both, or one that is wrong."""
    return st.sampled_from(
        [
            {},
            {name: file},
            {name: "absent.pem"},
            {f"{name}-data": ENCODED},
            {f"{name}-data": ""},
            {name: file, f"{name}-data": ENCODED},
        ]
    )


def joined(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with the keys of all parts."""
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


CLUSTERS = joined(
    st.sampled_from([{"server": "https://host:6443/"}, {"server": "https://host/k8s"}, {"server": "http://host"}, {}]),
    a_pem("certificate-authority", "ca.pem"),
    st.sampled_from([{}, {"insecure-skip-tls-verify": True}, {"insecure-skip-tls-verify": False}]),
    st.sampled_from([{}, {"tls-server-name": "name"}]),
    st.sampled_from([{}, {"extensions": [{"name": "x", "extension": {}}]}, {"proxy-url": "http://proxy"}]),
)
USERS = joined(
    a_pem("client-certificate", "user.pem"),
    a_pem("client-key", "key.pem"),
    st.sampled_from([{}, {"token": "text"}, {"token": ""}, {"tokenFile": "token"}, {"tokenFile": "absent"}]),
    st.sampled_from([{}, *({key: value} for key, value in OTHERS.items())]),
)


@given(cluster=CLUSTERS, user=USERS)
def test_it_reads_as_the_library_does_or_leaves_it_to_the_library(
    tmp_path_factory: pytest.TempPathFactory, cluster: dict[str, Any], user: dict[str, Any]
) -> None:
    path = written(tmp_path_factory.mktemp("kube"), cluster, user)
    found = read_plain(path, "")
    if found is None:
        return
    assert not user.keys() & OTHERS.keys()
    with found.files() as files:
        texts = [Path(file).read_bytes() if file else None for file in files]
    wanted = by_library(path)
    assert (found.server, found.authorization) == wanted[:2]
    if found.server.startswith("https://"):
        assert (texts, found.is_checked, found.server_name) == wanted[2:]


@pytest.mark.parametrize(
    ("cluster", "user", "authorization"),
    [
        ({"certificate-authority": "ca.pem"}, {"token": "text"}, "Bearer text"),
        ({"certificate-authority-data": ENCODED}, {"tokenFile": "token"}, "Bearer from-file"),
        ({"insecure-skip-tls-verify": True}, {"client-certificate": "user.pem", "client-key-data": ENCODED}, ""),
    ],
)
def test_tokens_and_certificates_need_no_library(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], authorization: str
) -> None:
    found = read_plain(written(tmp_path, {"server": "https://host", **cluster}, user), "")
    assert found is not None
    assert found.authorization == authorization


@pytest.mark.parametrize("more", [{"contexts": []}, {"clusters": []}, {"users": []}, {"current-context": ""}])
def test_what_is_incomplete_is_left_to_the_library(tmp_path: Path, more: dict[str, Any]) -> None:
    path = written(tmp_path, {"server": "https://host"}, {"token": "text"}, **more)
    assert read_plain(path, "") is None
    assert read_plain(f"{path}:{path}", "") is None
    assert read_plain(f"{path}-absent", "") is None


def test_the_library_stays_unloaded(tmp_path: Path) -> None:
    path = written(tmp_path, {"server": "http://127.0.0.1:1"}, {"token": "text"})
    code = f"""
import asyncio, pathlib, sys
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
async def main():
    api = await KubeApi.connect(KubeConfig(kubeconfig=pathlib.Path({path!r})), clock=SystemClock())
    await api.close()
asyncio.run(main())
print("kubernetes_asyncio" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  # our own code
    assert done.stdout.strip() == "False"
