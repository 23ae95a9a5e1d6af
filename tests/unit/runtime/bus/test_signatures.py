"""Signatures: what is signed, what counts, and what a forger may try."""

from pathlib import Path

import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.bus.signatures import HEADER, Signatures, signatures_of
from berth.runtime.config import BusConfig, ConfigError
from berth.runtime.keys.tokens import credentials
from berth.schemas.subjects import Subjects
from tests.support.signing_keys import signer

SUBJECTS = Subjects("default")
LEADER, OTHER, STRANGER = signer(1), signer(2), signer(3)
DATA = b"\x93record"


def signed(number: int = 7, subject: str = SUBJECTS.ledger, data: bytes = DATA) -> Stored:
    headers = LEADER.knowing().headers(SUBJECTS, subject, data, number)
    return Stored(subject, number, data, 0, headers)


def test_who_knows_the_key_takes_the_message() -> None:
    assert OTHER.knowing(LEADER).is_record(signed())


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"data": DATA + b"x"}, id="other bytes"),
        pytest.param({"sequence": 8}, id="another place"),
        pytest.param({"subject": SUBJECTS.lease("dispatcher")}, id="another subject"),
        pytest.param({"headers": None}, id="no headers"),
        pytest.param({"headers": {HEADER: ""}}, id="an empty header"),
        pytest.param({"headers": {HEADER: "a b c"}}, id="words"),
        pytest.param({"headers": {HEADER: f"{LEADER.key.public} 7 !!!"}}, id="no base64"),
        pytest.param({"headers": {HEADER: f"{LEADER.key.public} 7 AAAA"}}, id="a short signature"),
        pytest.param({"headers": {HEADER: f"{LEADER.key.public} -7 AAAA"}}, id="no number"),
        pytest.param({"headers": {HEADER: f"{LEADER.key.public} {'9' * 5000} AAAA"}}, id="a huge number"),
        pytest.param({"headers": {HEADER: f"{LEADER.key.public} \u0667 AAAA"}}, id="digits of another script"),
    ],
)
def test_what_is_changed_does_not_count(changed: dict[str, object]) -> None:
    message = signed()._replace(**changed)  # type: ignore[arg-type]  # fields of it
    assert not OTHER.knowing(LEADER).is_record(message)


def test_the_signature_of_an_unknown_key_does_not_count() -> None:
    headers = STRANGER.knowing().headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)
    assert not OTHER.knowing(LEADER).is_record(Stored(SUBJECTS.ledger, 7, DATA, 0, headers))


def test_an_unknown_key_under_the_name_of_a_known_one_does_not_count() -> None:
    header = STRANGER.knowing().headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)[HEADER]
    named = header.replace(STRANGER.key.public, LEADER.key.public)
    assert not OTHER.knowing(LEADER).is_record(Stored(SUBJECTS.ledger, 7, DATA, 0, {HEADER: named}))


def test_a_process_knows_what_it_has_written() -> None:
    mine = LEADER.knowing()
    headers = mine.headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)
    assert mine.is_record(Stored(SUBJECTS.ledger, 7, DATA, 0, headers))
    assert not mine.is_record(Stored(SUBJECTS.ledger, 7, b"other", 0, headers))


def test_a_process_whose_key_nobody_would_accept_does_not_write() -> None:
    with pytest.raises(ConfigError, match=r"bus\.signers_file: the file must have the public key of this process"):
        LEADER.alone_knowing(OTHER).headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)


@pytest.mark.parametrize("subject", [SUBJECTS.status("a", "b"), SUBJECTS.fact_ledger, "ledgers"])
def test_nothing_else_is_signed(subject: str) -> None:
    assert LEADER.knowing().headers(SUBJECTS, subject, DATA, 7) == {}


def test_without_keys_nothing_is_signed_and_all_counts() -> None:
    assert signatures_of(BusConfig()) is None
    assert Signatures().headers(SUBJECTS, SUBJECTS.ledger, DATA, 7) == {}
    assert Signatures().counts(Stored(SUBJECTS.ledger, 7, DATA, 0))


def signers(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "signers"
    path.write_text(text)
    return path


def test_keys_come_from_files(tmp_path: Path) -> None:
    creds = tmp_path / "user.creds"
    creds.write_text(credentials("jwt", LEADER.key))
    file = signers(tmp_path, f"# of a cell\n\n{OTHER.key.public} # other\n  {LEADER.key.public}\n")
    found = signatures_of(BusConfig(creds_file=creds, signers_file=file))
    assert found is not None
    headers = found.headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)
    assert OTHER.knowing(LEADER).is_record(Stored(SUBJECTS.ledger, 7, DATA, 0, headers))
    by_other = OTHER.knowing().headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)
    assert found.is_record(Stored(SUBJECTS.ledger, 7, DATA, 0, by_other))


def test_a_reader_needs_no_key_of_its_own(tmp_path: Path) -> None:
    found = signatures_of(BusConfig(signers_file=signers(tmp_path, LEADER.key.public)))
    assert found is not None
    assert found.is_record(signed())
    with pytest.raises(ConfigError, match=r"bus\.creds_file has none"):
        found.headers(SUBJECTS, SUBJECTS.ledger, DATA, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# none",
        "U",
        "dispatcher",
        LEADER.key.public[:-1],
        LEADER.key.public[:-2] + "AA",
        "é",
        LEADER.key.public * 9,
    ],
)
def test_a_text_that_is_no_public_key_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bus\.signers_file"):
        signatures_of(BusConfig(signers_file=signers(tmp_path, text)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bus\.signers_file is .*: a file that can be read"):
        signatures_of(BusConfig(signers_file=tmp_path / "none"))
