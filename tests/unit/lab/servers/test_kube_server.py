"""What a Kubernetes API server for tests is given: its users with their groups, and what clients read to reach it."""

import csv
import json
from pathlib import Path

import pytest

from berth.lab.servers.kube_server import ADMIN, KubeServer
from berth.runtime.errors import FatalError
from berth.runtime.kube.plain_kubeconfig import read_plain

VIEWER = "system:serviceaccount:berth-system:summary"


@pytest.fixture
def server(tmp_path: Path) -> KubeServer:
    """A server whose programs end at once."""
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
        (assets / name).write_text("#!/bin/sh\necho Kubernetes v1.36.3\n", "utf-8")
        (assets / name).chmod(0o755)
    return KubeServer(tmp_path / "kube", assets=assets, users={VIEWER: ("system:serviceaccounts", "readers")})


async def test_each_user_has_its_token_and_its_groups(server: KubeServer) -> None:
    with pytest.raises(FatalError):
        await server.start()
    with (server.root / "tokens.csv").open(encoding="utf-8", newline="") as file:
        rows = {name: (token, groups) for token, name, _, groups in csv.reader(file)}
    assert rows == {
        ADMIN: (server.admin_token, "system:masters"),
        VIEWER: (server.token(VIEWER), "system:serviceaccounts,readers"),
    }
    assert server.admin_token != server.token(VIEWER)


@pytest.mark.parametrize("user", [ADMIN, VIEWER])
def test_a_client_finds_the_server_its_certificate_and_its_own_token(server: KubeServer, user: str) -> None:
    server.ca_file.parent.mkdir(parents=True)
    server.ca_file.write_bytes(b"certificate")
    path = server.write_kubeconfig(server.root / "clients" / "kubeconfig", user=user)
    found = read_plain(str(path), "")
    assert found is not None
    assert (found.server, found.authorization, found.is_checked) == (server.url, f"Bearer {server.token(user)}", True)
    with found.files() as (ca, certificate, key):
        assert ca is not None
        assert (Path(ca).read_bytes(), certificate, key) == (b"certificate", None, None)
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(path.read_text("utf-8"))["kind"] == "Config"


def test_a_kubeconfig_is_of_a_user_that_there_is(server: KubeServer) -> None:
    with pytest.raises(FatalError, match="nobody"):
        server.write_kubeconfig(server.root / "kubeconfig", user="nobody")
