"""Marks of pods count with a code over them and the uid of the pod alone, where there are keys."""

import pytest

from berth.formats.ascend.mark_proofs import UNCHECKED, MarkProofs
from berth.formats.ascend.pod_annotations import ATTEMPT, JOB, JOB_UID, LEDGER, MAC, MARKS, RANK, STEP
from berth.formats.kubernetes.bound_pods import counted
from berth.formats.kubernetes.lean import Meta

KEY, OTHER = b"k" * 32, b"o" * 32
WRITTEN = {JOB: "llm", JOB_UID: "u", ATTEMPT: "2", RANK: "0", LEDGER: "made/1/5", "predicate-time": "7"}
CHECKED = MarkProofs([KEY])


def of(proofs: MarkProofs, meta: Meta) -> Meta:
    return counted(meta, proofs)


def meta(annotations: dict[str, str] | None, uid: str = "pod-1") -> Meta:
    return Meta(name="p", uid=uid, annotations=annotations)


def test_marks_with_their_code_count() -> None:
    found = meta(CHECKED.proved("pod-1", WRITTEN))
    assert of(CHECKED, found) is found
    assert len(found.annotation(MAC)) == 64


@pytest.mark.parametrize("key", MARKS)
def test_each_mark_that_is_changed_takes_all_of_them_away(key: str) -> None:
    written = CHECKED.proved("pod-1", {**WRITTEN, STEP: "3"})
    for text in ("9", ""):
        found = of(CHECKED, meta({**written, key: text}))
        assert found.annotations == {"predicate-time": "7", MAC: written[MAC]}


def test_marks_of_another_pod_do_not_count() -> None:
    copied = meta(CHECKED.proved("pod-1", WRITTEN), uid="pod-2")
    assert of(CHECKED, copied).annotation(JOB_UID) == ""


def test_a_text_may_not_move_from_one_mark_into_the_next() -> None:
    written = CHECKED.proved("pod-1", {**WRITTEN, JOB: "a", JOB_UID: "bc"})
    assert of(CHECKED, meta({**written, JOB: "ab", JOB_UID: "c"})).annotation(JOB) == ""


@pytest.mark.parametrize("code", ["", "0" * 64, "é", "\u0000", "x" * 100_000])
def test_another_code_proves_nothing(code: str) -> None:
    assert of(CHECKED, meta({**WRITTEN, MAC: code})).annotation(JOB) == ""


def test_the_key_before_proves_marks_while_it_is_there() -> None:
    old = MarkProofs([OTHER]).proved("pod-1", WRITTEN)
    both = MarkProofs([KEY, OTHER])
    assert of(both, meta(old)).annotation(JOB) == "llm"
    assert both.proved("pod-1", WRITTEN) == CHECKED.proved("pod-1", WRITTEN)
    assert of(CHECKED, meta(old)).annotation(JOB) == ""


def test_without_keys_all_marks_count_as_they_are() -> None:
    found = meta(WRITTEN)
    assert of(UNCHECKED, found) is found
    assert UNCHECKED.proved("pod-1", WRITTEN) == WRITTEN
    assert (UNCHECKED.are_checked, CHECKED.are_checked) == (False, True)


def test_a_pod_without_marks_stays_as_it_is() -> None:
    for annotations in (None, {}, {"predicate-time": "1"}):
        found = meta(annotations)
        assert of(CHECKED, found) is found
