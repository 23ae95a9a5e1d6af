"""Who we are to NATS: every contradiction and every unreadable file names its setting, and no secret."""

from pathlib import Path

import pytest

from berth.runtime.bus.access import Access, access_of
from berth.runtime.config import BusConfig, ConfigError, load
from tests.unit.runtime.test_config import Config


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_without_settings_nothing_is_shown_and_nothing_is_asked_for() -> None:
    assert access_of(BusConfig()) == Access()


def test_a_password_and_a_token_are_read_without_the_blanks_around_them(tmp_path: Path) -> None:
    secret = written(tmp_path, "secret", b" s3cret\n")
    user = access_of(BusConfig(user="berth", password_file=secret))
    assert (user.user, user.password, user.token) == ("berth", "s3cret", "")
    assert access_of(BusConfig(token_file=secret)) == Access(token="s3cret")  # noqa: S106  # of this test


@pytest.mark.parametrize(
    ("url", "needs_tls"),
    [("nats://a", False), ("tls://a", True), ("wss://a", True), ("nats://a:4222,tls://b:4222", True)],
)
def test_an_address_that_says_tls_asks_for_it(url: str, *, needs_tls: bool) -> None:
    assert access_of(BusConfig(url=url)).needs_tls is needs_tls


def test_what_contradicts_itself_is_named(tmp_path: Path) -> None:
    secret = written(tmp_path, "secret", b"s3cret")
    creds = written(tmp_path, "creds", b"BEGIN NATS USER JWT\nBEGIN USER NKEY SEED\n")
    wrong = [
        (BusConfig(user="berth"), "bus.password_file"),
        (BusConfig(password_file=secret), "bus.user"),
        (BusConfig(tls_cert_file=secret), "bus.tls_key_file"),
        (BusConfig(tls_key_file=secret), "bus.tls_cert_file"),
        (BusConfig(user="berth", password_file=secret, token_file=secret), "bus.token_file"),
        (BusConfig(token_file=secret, creds_file=creds), "bus.creds_file"),
    ]
    for config, field in wrong:
        with pytest.raises(ConfigError) as caught:
            access_of(config)
        assert caught.value.field == field
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("field", ["token_file", "creds_file", "tls_ca_file"])
@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), (b"\xff\xfe", "UTF-8"), (b"  \n", ""), (b"s3cret rubbish", "")]
)
def test_a_file_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, field: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    if field == "token_file" and content == b"s3cret rubbish":
        return  # a token may be anything
    with pytest.raises(ConfigError) as caught:
        access_of(load(Config, None, {f"BERTH_BUS__{field.upper()}": str(path)}).bus)
    assert (caught.value.field, caught.value.value) == (f"bus.{field}", repr(str(path)))
    assert words in caught.value.expected
    assert "s3cret" not in str(caught.value)


def test_a_certificate_without_its_key_is_named(tmp_path: Path) -> None:
    rubbish = written(tmp_path, "rubbish", b"rubbish")
    with pytest.raises(ConfigError, match=r"setting bus\.tls_cert_file is .*rubbish.*: a certificate in PEM whose key"):
        access_of(BusConfig(tls_cert_file=rubbish, tls_key_file=rubbish))
