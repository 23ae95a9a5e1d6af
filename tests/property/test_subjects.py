"""The escape of names inside subjects: reversible, and safe for the server."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.subjects import StreamName, Subjects, name_parts, token, untoken

ALLOWED = set(string.ascii_letters + string.digits + "-_=")
NAMES = st.text(st.characters(exclude_categories=["Cs"]))
TOKEN_LIKE = st.text(alphabet="abAB01=-_.*> é", max_size=12)


@given(NAMES)
def test_a_name_comes_back(name: str) -> None:
    assert untoken(token(name)) == name


@given(NAMES)
def test_a_token_holds_only_letters_digits_and_the_escape(name: str) -> None:
    text = token(name)
    assert text
    assert set(text) <= ALLOWED


@given(NAMES, NAMES)
def test_distinct_names_have_distinct_tokens(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


@given(st.text() | TOKEN_LIKE)
def test_a_text_is_a_token_in_its_only_form_or_a_value_error(text: str) -> None:
    try:
        name = untoken(text)
    except ValueError:
        return
    assert token(name) == text


@pytest.mark.parametrize(
    "text", ["", "=4", "==", "=61", "=2e", "=+1", "= 1", "=FF", "a.b", "=C3", "é", "=1_", "*", ">", "a b"]
)
def test_what_is_no_token_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"token|codec|literal"):
        untoken(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [("", "="), ("node-1", "node-1"), ("10.0.0.1", "10=2E0=2E0=2E1"), ("a b", "a=20b"), ("=", "=3D"), ("é", "=C3=A9")],
)
def test_the_form_is_fixed_for_ever(name: str, text: str) -> None:
    assert token(name) == text


@given(NAMES, NAMES, NAMES)
def test_names_come_back_from_a_subject(cell: str, namespace: str, job: str) -> None:
    subjects = Subjects(cell)
    for subject in (
        subjects.intake_request(namespace, job),
        subjects.fact_pod(namespace, job),
        subjects.status(namespace, job),
    ):
        assert name_parts(subject, 2) == [namespace, job]
        assert subject.isascii()
        assert not set(subject) & set("*> \t\r\n")


@given(NAMES, NAMES)
def test_cells_share_no_subject_and_no_stream(one: str, other: str) -> None:
    if one == other:
        return
    first, second = Subjects(one), Subjects(other)
    assert not first.root.startswith(second.root)
    assert not {first.stream(name) for name in StreamName} & {second.stream(name) for name in StreamName}


@given(NAMES, st.integers(1, 9))
def test_parts_of_a_subject_that_is_too_short_are_a_value_error(name: str, more: int) -> None:
    subject = token(name)
    with pytest.raises(ValueError, match="fewer than"):
        name_parts(subject, 1 + more)
