"""Requests to an API server: who we are, how long we wait, and what its answers mean."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from berth.formats.kubernetes.objects import ConfigMap, Listed
from berth.runtime.config import ConfigError
from berth.runtime.errors import AmbiguousError, PoisonError, TransientError
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.http import TOKEN_AGE_MAX_S
from berth.runtime.kube.listing import objects_of
from berth.runtime.kube.port import RefusedError
from tests.support.certificates import authority, certificate
from tests.support.clock import ManualClock
from tests.support.mirror import Mirror
from tests.support.scripted_http import Answer, ScriptedHttp, hang_up, reply
from tests.support.waiting import until

MAPS = "/api/v1/namespaces/a/configmaps"
ONE = f"{MAPS}/one"


def kubeconfig(path: Path, url: str, *, user: dict[str, Any] | None = None, ca: Path | None = None) -> Path:
    """A kubeconfig with one context."""
    cluster = {"server": url} if ca is None else {"server": url, "certificate-authority": str(ca)}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user if user is not None else {"token": "secret"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


@asynccontextmanager
async def connected(
    folder: Path, *answers: Answer, user: dict[str, Any] | None = None, clock: ManualClock | None = None, **times: float
) -> AsyncIterator[tuple[KubeApi, ScriptedHttp]]:
    async with ScriptedHttp(*answers) as server:
        path = kubeconfig(folder / "kubeconfig", server.url, user=user)
        config = KubeConfig(kubeconfig=path, timeout_s=times.get("timeout_s", 10))
        async with await KubeApi.connect(config, clock=clock or ManualClock(), user_agent="berth-test") as api:
            yield api, server


def status(code: int, reason: str, message: str, **headers: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return reply(json.dumps(body), status=code, **headers)


async def test_what_is_sent(tmp_path: Path) -> None:
    async with connected(tmp_path, reply(), reply(), reply(), reply(), reply()) as (api, server):
        await api.create(MAPS, {"data": {"a": "b"}})
        await api.patch(ONE, b'{"x":1}', how="strategic", field_manager="me")
        await api.patch(ONE, {"x": 1}, how="apply", field_manager="me")
        await api.update(ONE, ConfigMap(data={"a": "b"}))
        await api.delete(ONE, uid="u-1", grace_s=0, propagation="Background")
    post, strategic, apply, put, delete = server.asked
    assert (post.method, post.path, post.body) == ("POST", MAPS, b'{"data":{"a":"b"}}')
    assert post.headers["Authorization"] == "Bearer secret"
    assert post.headers["Content-Type"] == "application/json"
    assert post.headers["Accept-Encoding"] == "identity"
    assert post.headers["User-Agent"] == "berth-test"
    assert (strategic.body, strategic.query) == (b'{"x":1}', {"fieldManager": "me"})
    assert strategic.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert apply.query == {"fieldManager": "me", "force": "true"}
    assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
    assert json.loads(put.body)["data"] == {"a": "b"}
    assert json.loads(delete.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u-1"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


@pytest.mark.parametrize(
    ("code", "reading", "writing"),
    [
        (429, TransientError, TransientError),
        (503, TransientError, TransientError),
        (500, TransientError, AmbiguousError),
        (502, TransientError, AmbiguousError),
        (504, TransientError, AmbiguousError),
    ],
)
async def test_a_failure_of_the_server_may_heal(
    tmp_path: Path, code: int, reading: type[TransientError], writing: type[TransientError]
) -> None:
    failure = status(code, "Whatever", "no", Retry_After="7")
    async with connected(tmp_path, failure, failure) as (api, _):
        with pytest.raises(TransientError, match=f"HTTP {code}: no") as caught:
            await api.get(ONE, ConfigMap)
        assert type(caught.value) is reading
        assert caught.value.retry_after_s == 7
        with pytest.raises(TransientError) as caught:
            await api.create(MAPS, {})
        assert type(caught.value) is writing


@pytest.mark.parametrize(
    "path", [f"{MAPS}/../../b/configmaps/one", f"{MAPS}/", f"{MAPS}/one?watch=true", f"{MAPS}/%2e%2e/pods", f"{ONE}#x"]
)
async def test_a_path_that_reaches_another_object_is_not_sent(tmp_path: Path, path: str) -> None:
    async with connected(tmp_path, *[reply()] * 5) as (api, server):
        for call in (api.get(path, ConfigMap), api.create(path, {}), api.update(path, {}), api.patch(path, {})):
            with pytest.raises(RefusedError, match=r"path is .*, expected names of Kubernetes objects") as caught:
                await call
            assert caught.value.is_absent
        await api.delete(path)
        reflection = api.reflect(path, ConfigMap, Mirror())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflection.run())
            await until(lambda: reflection.errors, deadline_s=5, what="the list is refused")
            task.cancel()
    assert server.asked == []


async def test_a_refusal_says_why(tmp_path: Path) -> None:
    answers = (
        status(403, "Forbidden", "you may not"),
        status(409, "AlreadyExists", "it is there"),
        reply("<html>nothing here</html>", status=404),
        reply("", status=302, Location="http://127.0.0.1:1/elsewhere"),
        reply("[1]"),
    )
    async with connected(tmp_path, *answers) as (api, server):
        with pytest.raises(RefusedError, match="you may not") as caught:
            await api.get(ONE, ConfigMap)
        assert (caught.value.status, caught.value.cause) == (403, "Forbidden")
        with pytest.raises(RefusedError, match="it is there") as caught:
            await api.create(MAPS, {})
        assert caught.value.is_conflict
        with pytest.raises(RefusedError, match="nothing here") as caught:
            await api.get(ONE, ConfigMap)
        assert caught.value.is_absent
        with pytest.raises(RefusedError, match="HTTP 302") as caught:
            await api.get(ONE, ConfigMap)
        with pytest.raises(PoisonError, match=f"GET {ONE}: not a ConfigMap"):
            await api.get(ONE, ConfigMap)
    assert len(server.asked) == 5


async def test_a_broken_connection_leaves_a_write_in_doubt(tmp_path: Path) -> None:
    async with connected(tmp_path, hang_up(), hang_up(), hang_up()) as (api, server):
        with pytest.raises(AmbiguousError, match=f"POST {MAPS}"):
            await api.create(MAPS, {})
        with pytest.raises(TransientError, match=f"GET {ONE}") as caught:
            await api.get(ONE, ConfigMap)
        assert type(caught.value) is TransientError
    assert [asked.method for asked in server.asked] == ["POST", "GET", "GET"]  # what changes nothing is asked again


async def test_no_answer_in_time_leaves_a_write_in_doubt(tmp_path: Path) -> None:
    async with connected(tmp_path, timeout_s=0.2) as (api, _):
        with pytest.raises(AmbiguousError, match="no answer in time"):
            await api.create(MAPS, {})
        with pytest.raises(TransientError, match="no answer in time") as caught:
            await api.get(ONE, ConfigMap)
        assert type(caught.value) is TransientError


async def test_without_a_connection_nothing_was_written(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, server):
        gone = kubeconfig(tmp_path / "gone", server.url)
    async with await KubeApi.connect(KubeConfig(kubeconfig=gone), clock=ManualClock()) as api:
        with pytest.raises(TransientError, match="no connection") as caught:
            await api.create(MAPS, {})
        assert type(caught.value) is TransientError


async def test_a_token_is_read_again_after_a_minute_and_when_it_is_refused(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", ManualClock()
    token.write_text("first\n")
    no = status(401, "Unauthorized", "who are you")
    answers = (reply(), reply(), reply(), no, reply(), reply(), no, no)
    async with connected(tmp_path, *answers, user={"tokenFile": str(token)}, clock=clock) as (api, server):
        await api.create(MAPS, {})
        token.write_text("second\n")
        clock.advance(59)
        await api.create(MAPS, {})
        clock.advance(2)
        await api.create(MAPS, {})
        token.write_text("third\n")
        await api.create(MAPS, {})
        token.unlink()
        clock.advance(61)
        await api.create(MAPS, {})  # what it was is better than nothing
        token.write_text("fourth\n")
        with pytest.raises(TransientError, match="who are you"):
            await api.create(MAPS, {})
    shown = [asked.headers["Authorization"].removeprefix("Bearer ") for asked in server.asked]
    assert shown == ["first", "first", "second", "second", "third", "third", "third", "fourth"]


async def test_a_plug_in_says_who_we_are(tmp_path: Path) -> None:
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "told"}}
    user = {"exec": {"apiVersion": said["apiVersion"], "command": "echo", "args": [json.dumps(said)]}}
    async with connected(tmp_path, reply(), user=user) as (api, server):
        await api.create(MAPS, {})
    assert server.asked[0].headers["Authorization"] == "Bearer told"


async def test_a_certificate_says_who_we_are(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    own, own_key = certificate(tmp_path, "server", ca)
    ours, our_key = certificate(tmp_path, "berth", ca)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(own, own_key)
    async with ScriptedHttp(reply(), tls=tls) as server:
        user = {"client-certificate": str(ours), "client-key": str(our_key)}
        path = kubeconfig(tmp_path / "kubeconfig", server.url, user=user, ca=ca)
        async with await KubeApi.connect(KubeConfig(kubeconfig=path), clock=ManualClock()) as api:
            await api.create(MAPS, {})
        assert "Authorization" not in server.asked[0].headers
        path = kubeconfig(tmp_path / "kubeconfig", server.url, ca=ca)
        async with await KubeApi.connect(KubeConfig(kubeconfig=path), clock=ManualClock()) as api:
            with pytest.raises(TransientError):
                await api.create(MAPS, {})
        path = kubeconfig(tmp_path / "kubeconfig", server.url, user=user)
        async with await KubeApi.connect(KubeConfig(kubeconfig=path), clock=ManualClock()) as api:
            with pytest.raises(TransientError, match="certificate"):
                await api.create(MAPS, {})


@pytest.mark.parametrize("inline", [False, True])
async def test_a_renewed_certificate_is_used(tmp_path: Path, *, inline: bool) -> None:
    ca = authority(tmp_path)
    accepted = [certificate(tmp_path, "first", ca)]
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(*certificate(tmp_path, "server", ca))
    shown: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        (name,) = [value for ((key, value),) in request.transport.get_extra_info("peercert")["subject"]]
        shown.append(name)
        return web.Response(status=200 if name == accepted[-1][0].stem else 401, body=b"{}")

    path, ours, our_key = tmp_path / "kubeconfig", tmp_path / "ours.pem", tmp_path / "ours.key"

    def renew(cert: Path, key: Path) -> None:
        user = {"client-certificate": str(ours), "client-key": str(our_key)}
        if inline:
            texts = (b64encode(file.read_bytes()).decode() for file in (cert, key))
            user = dict(zip(("client-certificate-data", "client-key-data"), texts, strict=True))
        else:
            ours.write_bytes(cert.read_bytes())
            our_key.write_bytes(key.read_bytes())
        kubeconfig(path, server.url, user=user, ca=ca)

    async with ScriptedHttp(*[answer] * 20, tls=tls) as server:
        renew(*accepted[0])
        async with await KubeApi.connect(KubeConfig(kubeconfig=path), clock=ManualClock()) as api:
            await api.create(MAPS, {})
            accepted.append(certificate(tmp_path, "second", ca))
            with pytest.raises(TransientError, match="401"):
                await api.create(MAPS, {})
            assert shown == ["first"] * 3, "none is there to try instead"
            renew(accepted[-1][0], accepted[0][1])
            with pytest.raises(TransientError, match="certificate and key do not match"):
                await api.create(MAPS, {})
            shown.clear()
            renew(*accepted[-1])
            await api.create(MAPS, {})
            assert shown == ["first", "second"]
            accepted.append(certificate(tmp_path, "third", ca))
            renew(*accepted[-1])
            await api.get(ONE, ConfigMap)
            await api.get(ONE, ConfigMap)
            assert shown == ["first", "second", "second", "third", "third"]


async def test_an_invalid_certificate_leaves_the_one_before(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    tls.load_cert_chain(*certificate(tmp_path, "server", ca))
    clock = ManualClock()
    async with ScriptedHttp(reply(), reply(), tls=tls) as server:
        ours, our_key = certificate(tmp_path, "ours", ca)
        user = {"client-certificate": str(ours), "client-key": str(our_key)}
        path = kubeconfig(tmp_path / "kubeconfig", server.url, user=user, ca=ca)
        async with await KubeApi.connect(KubeConfig(kubeconfig=path), clock=clock) as api:
            await api.create(MAPS, {})
            ours.write_text("half")
            clock.advance(TOKEN_AGE_MAX_S)
            await api.create(MAPS, {})
    assert len(server.asked) == 2, "an invalid file leaves the certificate as it was"


async def test_the_way_to_the_server(tmp_path: Path) -> None:
    async def complaint(config: KubeConfig, **environ: str) -> str:
        with pytest.raises(ConfigError) as caught:
            await KubeApi.connect(config, clock=ManualClock(), environ=environ, service_account=tmp_path / "none")
        return str(caught.value)

    assert "kube.kubeconfig: needed" in await complaint(KubeConfig())
    absent = tmp_path / "absent"
    assert f"kube.kubeconfig is '{absent}': " in await complaint(KubeConfig(kubeconfig=absent))
    assert f"KUBECONFIG is '{absent}': " in await complaint(KubeConfig(), KUBECONFIG=str(absent))
    assert "ca.crt" in await complaint(
        KubeConfig(), KUBERNETES_SERVICE_HOST="10.0.0.1", KUBERNETES_SERVICE_PORT="443", KUBECONFIG=str(absent)
    )
    config = kubeconfig(tmp_path / "config", "host-without-scheme")
    assert "no server" in await complaint(KubeConfig(kubeconfig=config))
    config = kubeconfig(tmp_path / "config", "https://127.0.0.1:1")
    assert "absent" in await complaint(KubeConfig(kubeconfig=config, context="absent"))
    config.write_text("{")
    assert "kube.kubeconfig" in await complaint(KubeConfig(kubeconfig=config))
    (tmp_path / "bad.pem").write_text("no certificate")
    config = kubeconfig(tmp_path / "config", "https://127.0.0.1:1", ca=tmp_path / "bad.pem")
    assert "certificates in PEM" in await complaint(KubeConfig(kubeconfig=config))


async def test_a_service_account_whose_token_is_missing(tmp_path: Path) -> None:
    authority(tmp_path).rename(tmp_path / "ca.crt")
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(ConfigError, match=r"kube.*token"):
        await KubeApi.connect(KubeConfig(), clock=ManualClock(), environ=environ, service_account=tmp_path)


def a_page(*names: str, more: str = "") -> Answer:
    return reply(json.dumps({"metadata": {"continue": more}, "items": [{"metadata": {"name": one}} for one in names]}))


async def test_a_collection_is_read_page_by_page(tmp_path: Path) -> None:
    pages = (a_page("a", "b", more="next"), a_page(more="last"), a_page("c"))
    async with connected(tmp_path, *pages) as (api, server):
        listed = objects_of(api, MAPS, Listed[ConfigMap], page_size=2, selectors={"labelSelector": "a=b"})
        assert [one.metadata.name async for one in listed] == ["a", "b", "c"]
    assert [one.query for one in server.asked] == [
        {"labelSelector": "a=b", "limit": "2", **more} for more in ({}, {"continue": "next"}, {"continue": "last"})
    ]


@pytest.mark.parametrize(("pages", "expected"), [((a_page("a", more="x"),), TransientError), ((), RefusedError)])
async def test_a_page_that_the_server_has_no_more_means_that_the_list_is_to_be_read_again(
    tmp_path: Path, pages: tuple[Answer, ...], expected: type[Exception]
) -> None:
    gone = reply(json.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}), status=410)
    async with connected(tmp_path, *pages, gone) as (api, _):
        with pytest.raises(expected, match="too old"):
            [one async for one in objects_of(api, MAPS, Listed[ConfigMap], page_size=2)]
