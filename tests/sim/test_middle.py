"""What is checked in the middle of a run finds what is wrong."""

from types import SimpleNamespace

import msgspec
import pytest

from berth.schemas.refusal import Refusal
from tests.sim.errors import Failure
from tests.sim.middle import SHARDS, Middle, see_refused
from tests.sim.observer import Observer
from tests.sim.run import live
from tests.sim.world import World


@pytest.fixture(scope="module")
def observer() -> Observer:
    """That of a cell at rest."""
    found: list[World] = []
    lived = live(8, on_end=found.append)
    assert lived.kind == ""
    return found[0].observer


@pytest.mark.parametrize("seed", range(len(SHARDS)))
def test_a_history_is_decided_alike_with_any_number_of_scorers(observer: Observer, seed: int) -> None:
    name = f"decided with {SHARDS[seed]} scorers"
    before = observer.count[name]
    Middle(observer, seed).see_replayed()
    assert observer.count[name] > before


def test_a_record_that_is_not_what_is_decided_again_is_found(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the facts about nodes nothing has a place, and the records say otherwise."""
    facts = [fact for fact in observer.facts if ".fact.node." not in fact.subject]
    monkeypatch.setattr(observer, "facts", facts)
    with pytest.raises(Failure, match="decided"):
        Middle(observer, 0).see_replayed()


def test_a_gang_that_waits_although_there_is_room_is_found(observer: Observer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that were accepted, as if each had been refused; nobody has any chips."""
    state = observer.state
    monkeypatch.setattr(state.fold, "holdings", {})
    monkeypatch.setattr(state.fold, "settings", msgspec.structs.replace(state.fold.settings, queue_policy="skip"))
    see_refused(observer)
    refused = SimpleNamespace(phase="waiting", refusal=Refusal("no-room", form="module910bx8"))
    for key, job in list(state.jobs.items()):
        if job.request is not None and job.state != "rejected":
            monkeypatch.setitem(state.jobs, key, msgspec.structs.replace(job, state="accepted"))
            monkeypatch.setitem(state.fold.gangs, job.uid, refused)
    with pytest.raises(Failure, match="could be placed"):
        see_refused(observer)
