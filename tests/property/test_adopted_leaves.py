"""States of leaves from annotations of adopted pods: the merge of what live pods say, in whatever order it came."""

from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_packing import SWITCHES
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.core.topologies.switches.occupancy.leaf_bits import EXCLUSIVE, SHARED, STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode
from berth.schemas.facts import Leaf, PodPhase, PodsSeen, TopologySeen
from berth.schemas.status import SnapshotBody
from tests.support.gang_lifecycle import Life

LEAVES: Final = 3
PLACES: Final = 2


class Word(msgspec.Struct, frozen=True):
    """What a pod says now; it is gone where it says nothing."""

    pod: int
    state: int | None
    label: str


WORDS = st.lists(
    st.builds(
        Word,
        pod=st.integers(0, 7),
        state=st.one_of(st.none(), st.sampled_from((0, 1, 2, 4, 5, 6))),
        label=st.sampled_from(("", "null", "normal-schema", "large-model-schema")),
    ),
    max_size=24,
)


def node_of(pod: int) -> str:
    return f"n{pod % (LEAVES * PLACES)}"


def fact(word: Word) -> PodsSeen:
    uid = f"pod{word.pod}"
    if word.state is None:
        return PodsSeen("other", uid, uid, 0, foreign=True)
    return PodsSeen(
        "other",
        uid,
        uid,
        0,
        pack([0], 4),
        pack_names([node_of(word.pod)]),
        pack([0], 4),
        pack([PodPhase.RUNNING], 1),
        pack([1 << word.pod], 8),
        resource="r",
        foreign=True,
        tor_affinity=word.label,
        leaf_states=bytes([word.state]) if word.state else b"",
    )


def merged(said: dict[int, Word]) -> list[int]:
    """State byte of each leaf.

    Unhealthy if any pod says so; shared if unhealthy or any pod says so, else exclusive if any pod does.
    """
    found = []
    for leaf in range(LEAVES):
        states = [word.state or 0 for pod, word in said.items() if pod % (LEAVES * PLACES) // PLACES == leaf]
        unhealthy = any(state & UNHEALTHY for state in states)
        shared = unhealthy or any(state & STATE == SHARED for state in states)
        exclusive = any(state & STATE == EXCLUSIVE for state in states)
        found.append((SHARED if shared else EXCLUSIVE if exclusive else 0) + UNHEALTHY * unhealthy)
    return found


def settle(life: Life) -> None:
    for _ in range(4):
        if not life.due():
            return
        life.carry_out()
    raise AssertionError("it never ends")


@given(WORDS, st.integers(0, 24))
def test_leaves_are_as_the_living_pods_say(words: list[Word], at_once: int) -> None:
    life = Life()
    leaves = [
        Leaf(f"leaf{leaf}", "", [f"n{leaf * PLACES + place}" for place in range(PLACES)]) for leaf in range(LEAVES)
    ]
    life.fact(TopologySeen(SWITCHES, leaves, places=PLACES), f"topology.{SWITCHES}")
    said: dict[int, Word] = {}
    for number, word in enumerate(words):
        life.fact(fact(word), f"pod.other.pod{word.pod}")
        said.pop(word.pod, None)
        if word.state is not None:
            said[word.pod] = word
        if number >= at_once:
            settle(life)
    settle(life)
    mask = STATE | UNHEALTHY
    assert [int(bits) & mask for bits in leaf_index_of(life.state.indexes).occupancy.bits()] == merged(said)
    check(life.state)
    again = State(keeps=True)
    again.load(decode(life.state.dump(), SnapshotBody))
    assert (
        leaf_index_of(again.indexes).occupancy.bits().tolist()
        == leaf_index_of(life.state.indexes).occupancy.bits().tolist()
    )
