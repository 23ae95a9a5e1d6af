"""Nodes hop between the chunks of ClusterD at every write; what is made of the chunks does not."""

from hypothesis import given
from hypothesis import strategies as st

from berth.formats.ascend.cluster_info import Chunks, Entry

NODES = [f"n{index}" for index in range(6)]


@st.composite
def writes(draw: st.DrawFn) -> list[tuple[dict[str, int], dict[str, str], list[str], bool]]:
    """Writes of ClusterD: the time of each node's report, its chunk, the order of chunks, whether it was restarted."""
    times = dict.fromkeys(NODES, 0)
    out = []
    for _ in range(draw(st.integers(1, 6))):
        for node in draw(st.sets(st.sampled_from(NODES))):
            times[node] += draw(st.integers(1, 3))
        chunks = [f"c{number}" for number in range(draw(st.integers(1, 4)))]
        places = {node: draw(st.sampled_from(chunks)) for node in NODES}
        out.append((dict(times), places, draw(st.permutations(["c0", "c1", "c2", "c3"])), draw(st.booleans())))
    return out


@given(history=writes())
def test_every_node_is_always_there_never_older_and_newest_in_the_end(
    history: list[tuple[dict[str, int], dict[str, str], list[str], bool]],
) -> None:
    chunks: Chunks[int] = Chunks()
    known: set[str] = set()
    seen = dict.fromkeys(NODES, -1)
    for now_ms, (times, places, order, was_restarted) in enumerate(history):
        for chunk in order:
            entries = {
                node: Entry(times[node], times[node], str(times[node]).encode())
                for node in NODES
                if places[node] == chunk
            }
            if not entries and was_restarted:
                continue  # a new process does not know the chunks of the one before, and leaves them as they are
            changed = chunks.take(chunk, entries, now_ms=now_ms)
            assert changed == sorted(changed)
            known |= set(entries)
            assert set(chunks.newest) == known
            for node in known:
                time = chunks.newest[node].value
                assert time >= seen[node]
                assert (time != seen[node]) <= (node in changed)
                seen[node] = time
        assert {node: entry.value for node, entry in chunks.newest.items()} == times
