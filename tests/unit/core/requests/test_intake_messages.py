"""What is a request or a cancellation, and why other bytes are none."""

import msgspec
import pytest

from berth.core.requests.dead_reasons import INVALID, UNDECODABLE, UNKNOWN_KIND, WRONG_SUBJECT
from berth.core.requests.intake_messages import NoRequestError, read_request
from berth.schemas.envelope import encode
from berth.schemas.intake import JobCancel, JobSteer
from berth.schemas.subjects import Subjects
from tests.support.cells import a_job

SUBJECTS = Subjects("cell")
REQUEST = SUBJECTS.intake_request("default", "j")
CANCEL = SUBJECTS.intake_cancel("default", "j")


def test_each_kind_of_message_is_read_on_its_subject() -> None:
    wish, change = JobCancel("default", "j", "uid"), JobSteer("default", "j", "uid", held=True)
    assert read_request(SUBJECTS, SUBJECTS.intake_steer("default", "j"), encode(change)) == change
    assert read_request(SUBJECTS, REQUEST, encode(a_job("j"))) == a_job("j")
    assert read_request(SUBJECTS, CANCEL, encode(wish)) == wish


@pytest.mark.parametrize(
    ("subject", "data", "code", "words"),
    [
        (REQUEST, b'  {"name": "j"}', UNDECODABLE, "it looks like JSON"),
        (REQUEST, b"[1]", UNDECODABLE, "it looks like JSON"),
        (REQUEST, b"", UNDECODABLE, "not an envelope"),
        (REQUEST, msgspec.msgpack.encode(("fact.node", 1, ())), UNKNOWN_KIND, "expected 'intake.request'"),
        (REQUEST, msgspec.msgpack.encode(("intake.request", 9, ())), INVALID, "version is 9"),
        (REQUEST, msgspec.msgpack.encode(("intake.request", 1, (1,))), INVALID, "Expected"),
        (CANCEL, msgspec.msgpack.encode(("intake.cancel", 1, (1,))), INVALID, "Expected"),
        (REQUEST, encode(a_job("other")), WRONG_SUBJECT, "namespace and name are default/other"),
        (REQUEST, encode(a_job("j", uid="a\r\nNats-Rollup: all")), INVALID, "characters that can be printed"),
        (REQUEST, encode(a_job("j", uid="a\u2028b")), INVALID, "characters that can be printed"),
        (REQUEST, encode(a_job("j", uid=" a")), INVALID, "characters that can be printed"),
        (REQUEST, encode(a_job("j", uid="a" * 1_001)), INVALID, "at most 1000 characters"),
        (CANCEL, encode(JobSteer("default", "j", "uid")), WRONG_SUBJECT, "the subject is berth.cell.intake.cancel"),
        (CANCEL, msgspec.msgpack.encode(("intake.steer", 1, (1,))), INVALID, "Expected"),
        (CANCEL, encode(a_job("j")), WRONG_SUBJECT, "the subject is berth.cell.intake.cancel"),
        (SUBJECTS.root + "intake.x", encode(a_job("j")), WRONG_SUBJECT, "the subject is berth.cell.intake.x"),
    ],
)
def test_anything_else_is_refused_with_the_kind_of_the_reason(subject: str, data: bytes, code: str, words: str) -> None:
    with pytest.raises(NoRequestError, match=words) as caught:
        read_request(SUBJECTS, subject, data)
    assert caught.value.code == code
    assert ("JSON" in str(caught.value)) == data.lstrip().startswith((b"{", b"["))
