"""The gateway of the manifests for production at work: NATS with users and TLS, its own rights, tokens of a Secret.

Excluded: the image, the containers and the Ingress.
"""

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.support.certificates import documented_secret
from tests.support.kustomize import render
from tests.support.nats_rights import PEOPLE
from tests.support.pod_processes import cell_at_work, planned_pods
from tests.support.pods import pods_of
from tests.support.processes import ROOT
from tests.support.waiting import SLACK, until_true

K8S: Final = ROOT / "k8s"
USERS: Final = (
    "inventory",
    "health",
    "dispatcher",
    "scorer",
    "binder",
    "summary",
    "api",
    "gateway",
    PEOPLE,
    "streams",
    "route",
)
WORKLOADS: Final = ("nats", "dispatcher", "api", "gateway")
PORTAL: Final = "of-portal"


@pytest.mark.timeout(250)
async def test_the_gateway_of_the_manifests_answers_who_has_a_token(tmp_path: Path) -> None:
    objects = render(K8S / "overlays" / "prod", [K8S / "gateway", K8S / "gateway" / "users"])
    tokens = [{"identity": "portal", "sha256": hashlib.sha256(PORTAL.encode()).hexdigest()}]
    secrets = {
        "berth-nats": {user: f"1e{number}ab" for number, user in enumerate(USERS)},
        "berth-nats-tls": documented_secret(tmp_path, also="IP:127.0.0.1"),
        "berth-gateway": {"tokens": json.dumps(tokens)},
    }
    pods = [pod for name in WORKLOADS for pod in pods_of(objects, name, secrets=secrets)]
    first = pods_of(objects, "dispatcher", secrets=secrets, first=True)[0]
    *planned, applies = planned_pods([*pods, first], tmp_path, domains={"nats": "nats"})
    gateways = [one for one in planned if one.name.startswith("gateway")]
    assert len(gateways) == 2
    headers = {"Authorization": f"Bearer {PORTAL}"}
    async with asyncio.timeout(SLACK * 240), cell_at_work(planned, applies, tmp_path, deadline_s=90) as running:
        for one in gateways:
            url = f"http://127.0.0.1:{one.environment['BERTH_PORT']}"
            async with aiohttp.ClientSession(url) as session:

                async def is_known(session: aiohttp.ClientSession = session) -> bool:
                    async with session.get("/api/v1/me", headers=headers) as answer:
                        return answer.status == 200 and (await answer.json())["identity"] == "portal"

                await until_true(is_known, deadline_s=60, what=f"api answers through the gateway: {running.logs()}")
                async with session.get("/api/v1/me") as answer:
                    assert answer.status == 401
                async with session.get("/api/v1/jobs/team-a/train", headers=headers) as answer:
                    assert answer.status == 403  # the settings of api in the manifests grant nothing
        text = running.logs()
        assert re.search("no permission|authorization failed", text) is None, text
        ours = [one for one in running.processes.values() if one.planned.is_ours]
        assert [await one.stop() for one in ours] == [0] * len(ours), running.logs()
