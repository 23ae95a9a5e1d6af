"""Expected starts on random jobs with exact run times: under ``conservative`` they are when the jobs really start."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.expected.forecast import Forecast
from berth.core.state.cell import State
from berth.schemas.envelope import open_envelope
from berth.schemas.ledger import Round, Settings
from berth.schemas.recording import Entry
from berth.schemas.workload import PlannedJob
from tests.support.simulations import a_plan, jobs_of, planned, run_of


@st.composite
def lines(draw: st.DrawFn) -> list[PlannedJob]:
    """Jobs of whole nodes that all come at once, and say how long they run."""
    found = []
    for number in range(draw(st.integers(2, 10))):
        run_s, pods = draw(st.integers(1, 40)), draw(st.integers(1, 4))
        priority = draw(st.integers(0, 2))
        job = planned(f"j{number:02}", 0, run_s, 8, pods=pods, declared_s=run_s, priority=priority)
        found.append(job)
    return found


def forecasts(entries: Sequence[Entry]) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Earliest and latest expected starts by name, after each record from the first on that places something."""
    state, found, has_placed = State(), [], False
    for entry in entries:
        if entry.subject:
            state.apply_fact(entry.subject, entry.sequence, entry.data)
            continue
        state.apply_record(entry.sequence, entry.data)
        has_placed |= bool(state.fold.holdings)
        if has_placed and open_envelope(entry.data).kind == Round.KIND:
            every = Forecast(state, state.fold.at_ms).all()
            found.append(({one.name: one.earliest_ms for one in every}, {one.name: one.latest_ms for one in every}))
    return found


@settings(max_examples=25)
@given(jobs=lines(), nodes=st.integers(4, 6))
def test_under_conservative_jobs_start_when_they_were_expected_to(jobs: list[PlannedJob], nodes: int) -> None:
    terms = Settings(queue_policy="conservative", reserve_chips=1, reserve_depth=64)
    _, timeline, entries = run_of(a_plan(*jobs, cluster=f"nodes={nodes}", settings=terms))
    known = jobs_of(timeline)
    for early, late in forecasts(entries):
        assert early == late
        assert early == {name: known[name].placed_ms for name in early}
