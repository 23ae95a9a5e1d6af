"""How full the cell is, and what jobs wait for: counted once for each state."""

from collections import Counter

import msgspec

from berth.core.overview.chip_use import CellUse, cell_use
from berth.core.overview.wanted_products import Wanted, wanted_of, wanted_product
from berth.core.state.cell import JobKey, State
from berth.runtime.clock import Clock
from berth.schemas.facts import JobSeen
from berth.schemas.programs.lists import PlaceUse
from berth.services.api.job_list import JobList


class Usage:
    """Counts chips.

    Args:
        clock: Of the process.
        state: The cell.
        jobs: Its jobs.
    """

    def __init__(self, clock: Clock, state: State, jobs: JobList) -> None:
        self._clock = clock
        self._state = state
        self._jobs = jobs
        self._wanted: dict[JobKey, tuple[JobSeen, Wanted]] = {}
        """What tells the products of jobs that wait, so that it is looked for once a job."""
        self._use: tuple[tuple[int, int], CellUse] | None = None
        """Revision of the nodes and how many drains had begun, and how full the cell was."""

    def use(self) -> CellUse:
        """How full the cell is."""
        revision = (self._state.table.revision, self.begun_drains())
        if self._use is None or self._use[0] != revision:
            self._use = (revision, cell_use(self._state.table, self._clock.now_ms()))
        return self._use[1]

    def begun_drains(self) -> int:
        """Nodes that are drained by now."""
        return len(self._state.table.drained_rows(self._clock.now_ms()))

    def products(self) -> list[PlaceUse]:
        """Products with the chips that jobs wait for, by name; also those that no node has."""
        known, self._wanted = self._wanted, {}
        wanted: Counter[Wanted | None] = Counter()
        for key, chips in self._jobs.waiting_jobs():
            job = self._state.jobs.get(key)
            if job is None or job.request is None:
                wanted[None] += chips
                continue
            one = known.get(key)
            if one is None or one[0] is not job:
                one = (job, wanted_of(job.request))
            self._wanted[key] = one
            wanted[one[1]] += chips
        waiting: Counter[str] = Counter()
        for asked, chips in wanted.items():
            waiting[wanted_product(asked) if asked is not None else ""] += chips
        found = {
            one.name: msgspec.structs.replace(one, waiting=waiting.pop(one.name, 0)) for one in self.use().products
        }
        found |= {name: PlaceUse(name=name, waiting=chips) for name, chips in waiting.items()}
        return [found[name] for name in sorted(found)]
