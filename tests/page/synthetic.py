"""Synthetic cells for the page: a view and the changes after it, from a seed."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

BEGIN_MS: Final = 1_790_000_000_000
CHIPS: Final = 8
SUPERPOD_CHIPS: Final = 16
LEAF: Final = 16
RACK: Final = 8
SUPERPOD: Final = 48
STEP_MS: Final = 7_000
Json = dict[str, Any]

_TEAMS: Final = ("team-a", "team-b", "vision", "speech", "search")
_WORK: Final = ("pretrain", "finetune", "eval", "rlhf", "distill", "ablation")
_NOT_ROOM: Final = "{pods} nodes with {chips} free chips are needed under one leaf switch; the best has {found}"


class SyntheticCell:
    """A cell whose jobs arrive, wait, run and end.

    Args:
        nodes: How many nodes; a third of them are in SuperPoDs of 48.
        seed: Of everything that is drawn.
        occupied: Share of the chips that the first jobs take.
    """

    def __init__(self, nodes: int, seed: int = 1, occupied: float = 0.7) -> None:
        self._random = random.Random(seed)  # noqa: S311  # not a secret
        self.at_ms = BEGIN_MS
        self.version = 1
        self._next_n = 1
        self.jobs: dict[int, Json] = {}
        self.queue: list[int] = []
        self.faults: list[Json] = []
        self.has_queues = False
        self.events: dict[str, list[Json]] = {}
        self.layout = _layout(nodes)
        self.nodes: list[list[Any]] = [_free_node(node[5]) for node in self.layout["nodes"]]
        self._touched: set[int] = set()
        self._changed: set[int] = set()
        self._gone: list[int] = []
        self._fill(occupied)
        self._plant_faults()
        for _ in range(min(40, 3 + nodes // 40)):
            self._wait()
        self._touched.clear()
        self._changed.clear()

    def view(self) -> Json:
        """The whole picture."""
        return self._head() | {
            "cell": "synthetic",
            "layout": self.layout,
            "nodes": [list(node) for node in self.nodes],
            "jobs": [dict(job) for job in self.jobs.values()],
            "queue": list(self.queue),
            "faults": list(self.faults),
            "reservations": [],
            "has_queues": self.has_queues,
            "is_partial": False,
        }

    def changes(self, count: int) -> Iterator[Json]:
        """Changes of the next so many steps of seven seconds."""
        for _ in range(count):
            yield self.step()

    def step(self) -> Json:
        """One change: a job ends, a job starts that waited, a job arrives."""
        self.at_ms += STEP_MS
        draw = self._random.random()
        if draw < 0.45:
            self._end()
        if draw < 0.6:
            self._start()
        if draw > 0.4:
            self._wait()
        return self.change()

    def change(self) -> Json:
        """What has happened since the last change."""
        self.version += 1
        found = self._head() | {
            "nodes": [[row, list(self.nodes[row])] for row in sorted(self._touched)],
            "jobs": [dict(self.jobs[n]) for n in sorted(self._changed) if n in self.jobs],
            "gone": sorted(self._gone),
            "queue": list(self.queue),
        }
        self._touched.clear()
        self._changed.clear()
        self._gone.clear()
        return found

    def add_job(self, **values: object) -> int:
        """A job that waits; ``values`` replace its fields. Returns its number."""
        n = self._next_n
        self._next_n += 1
        pods = self._random.choice((1, 1, 2, 4, 8))
        name = f"{self._random.choice(_WORK)}-{n}"
        self.jobs[n] = {
            "n": n,
            "namespace": self._random.choice(_TEAMS),
            "name": name,
            "uid": f"uid-{n}",
            "phase": "waiting",
            "code": "no-room",
            "sentence": "",
            "queue": "default",
            "priority": self._random.choice((0, 0, 0, 5)),
            "pods": pods,
            "chips": pods * CHIPS,
            "submitted_ms": self.at_ms,
            "since_ms": self.at_ms,
            "attempt": 1,
            "step": 0,
            "position": 0,
            "is_foreign": False,
        } | values
        self._changed.add(n)
        self._event(n, "accepted", attempt=0)
        return n

    def place(self, n: int, rows: Sequence[int]) -> None:
        """Give a job all chips of some nodes."""
        job = self.jobs[n]
        for row in rows:
            self.nodes[row][3] = [n] * len(self.nodes[row][3])
            self._touched.add(row)
        job |= {"phase": "placed", "code": "", "sentence": "", "position": 0, "since_ms": self.at_ms}
        if n in self.queue:
            self.queue.remove(n)
            self._number()
        self._changed.add(n)
        ranks = [
            {"rank": rank, "node": self.layout["nodes"][row][0], "chips": list(range(len(self.nodes[row][3])))}
            for rank, row in enumerate(rows)
        ]
        self._event(n, "placed", ranks=ranks)

    def wait(self, n: int, sentence: str) -> None:
        """Put a job at the end of the queue."""
        self.jobs[n] |= {"phase": "waiting", "sentence": sentence}
        self.queue.append(n)
        self._number()
        self._event(n, "waiting", sentence=sentence, code="no-room")

    def _head(self) -> Json:
        return {"version": self.version, "at_ms": self.at_ms, "facts_seq": self.version, "ledger_seq": self.version}

    def _event(self, n: int, phase: str, attempt: int = 1, **values: object) -> None:
        job = self.jobs[n]
        key = f"{job['namespace']}/{job['name']}/{job['uid']}"
        final = phase in {"succeeded", "failed", "cancelled", "rejected"}
        self.events.setdefault(key, []).append(
            {
                "id": f"{job['uid']}/{attempt}/0/{phase}",
                "namespace": job["namespace"],
                "name": job["name"],
                "uid": job["uid"],
                "attempt": attempt,
                "step": 0,
                "phase": phase,
                "at_ms": self.at_ms,
                "final": final,
                "sentence": "",
                "code": "",
                "ranks": [],
                "source": "ledger",
                "sequence": self.version,
            }
            | values
        )

    def _number(self) -> None:
        for position, n in enumerate(self.queue, 1):
            if self.jobs[n]["position"] != position:
                self.jobs[n]["position"] = position
                self._changed.add(n)

    def _free_rows(self) -> list[int]:
        return [row for row, node in enumerate(self.nodes) if not any(node[3]) and node[0] == "ok" and not node[1]]

    def _fill(self, occupied: float) -> None:
        """Running jobs on consecutive nodes, with gaps."""
        row = 0
        while row < len(self.nodes):
            pods = self._random.choice((1, 1, 2, 4, 4, 8, 16)) if len(self.nodes) > 40 else self._random.choice((1, 2))
            rows = range(row, min(len(self.nodes), row + pods))
            if self._random.random() < occupied:
                n = self.add_job(pods=len(rows), submitted_ms=self.at_ms - self._random.randrange(60_000, 50_000_000))
                self.jobs[n]["chips"] = sum(len(self.nodes[one][3]) for one in rows)
                self.place(n, rows)
                self._started(n)
            elif self._random.random() < 0.4:
                n = self.add_job(pods=1, chips=2, submitted_ms=self.at_ms - 400_000, phase="running")
                self.nodes[row][3][:2] = [n, n]
            row += pods

    def _started(self, n: int) -> None:
        """A job that was placed soon after its submission, and runs since then."""
        job = self.jobs[n]
        placed_ms = job["submitted_ms"] + self._random.randrange(20_000)
        job |= {"phase": "running", "since_ms": placed_ms + 1_500}
        self._event(n, "running", at_ms=job["since_ms"])
        accepted, placed, _ = self.events[f"{job['namespace']}/{job['name']}/{job['uid']}"]
        accepted["at_ms"], placed["at_ms"] = job["submitted_ms"], placed_ms

    def _plant_faults(self) -> None:
        levels = ("evict", "no-new-work", "sub-healthy", "evict")
        texts = (
            "the device plug-in reports chip {chip} as unhealthy",
            "the node has a fault of its switch",
            "chip {chip} has a slow link",
            "the node is not ready",
        )
        for index in range(max(2, len(self.nodes) // 150)):
            row = self._random.randrange(len(self.nodes))
            if self.nodes[row][0] != "ok":
                continue
            kind = index % len(levels)
            chip = self._random.randrange(4)
            self.nodes[row][0] = levels[kind]
            if kind == 0:
                self.nodes[row][4] = 1 << chip
            if kind == 2:
                self.nodes[row][0] = "ok"
                self.nodes[row][5] = 1 << chip
            if kind == 3:
                self.nodes[row][1] = 1
            name = self.layout["nodes"][row][0]
            owners = sorted({owner for owner in self.nodes[row][3] if owner > 0})
            self.faults.append(
                {
                    "at_ms": self.at_ms - self._random.randrange(10_000, 4_000_000),
                    "since_ms": self.at_ms - 500_000 * (index + 1),
                    "node": row,
                    "place": f"{name} chip {chip}" if kind in {0, 2} else name,
                    "level": levels[kind],
                    "sentence": texts[kind].format(chip=chip),
                    "jobs": owners,
                }
            )
        self.faults.sort(key=lambda fault: -fault["at_ms"])
        cordoned = self._random.randrange(len(self.nodes))
        self.nodes[cordoned][1] |= 2

    def _wait(self) -> None:
        n = self.add_job(submitted_ms=self.at_ms - self._random.randrange(0, 90_000))
        job = self.jobs[n]
        self.wait(n, _NOT_ROOM.format(pods=job["pods"], chips=CHIPS, found=self._random.randrange(job["pods"])))

    def _start(self) -> None:
        free = self._free_rows()
        for n in self.queue:
            if self.jobs[n]["pods"] <= len(free):
                self.place(n, free[: self.jobs[n]["pods"]])
                return

    def _end(self) -> None:
        active = [n for n, job in self.jobs.items() if job["phase"] in {"running", "placed"} and job["pods"] > 0]
        if not active:
            return
        n = self._random.choice(active)
        for row, node in enumerate(self.nodes):
            if n in node[3]:
                node[3] = [0 if owner == n else owner for owner in node[3]]
                self._touched.add(row)
        phase = self._random.choice(("succeeded", "succeeded", "failed"))
        self.jobs[n] |= {"phase": phase, "since_ms": self.at_ms}
        self._changed.add(n)
        self._event(n, phase)


def recording(cell: SyntheticCell, steps: int, title: str = "Synthetic cell") -> Json:
    """A recording of the next steps of a cell."""
    view = cell.view()
    changes = list(cell.changes(steps))
    words = {"placed": "{} has the first free nodes that suffice.", "waiting": "The best nodes for {} are in use."}
    stories = {
        key: {
            "events": [
                event | ({"why": [words[event["phase"]].format(event["name"])]} if event["phase"] in words else {})
                for event in events
            ]
        }
        for key, events in cell.events.items()
    }
    return {
        "title": title,
        "begin_ms": view["at_ms"],
        "end_ms": cell.at_ms,
        "view": view,
        "changes": changes,
        "stories": stories,
    }


def _free_node(chips: int) -> list[Any]:
    return ["ok", 0, 0, [0] * chips, 0, 0, 0, 0, 0, 0]


def _layout(nodes: int) -> Json:
    in_superpods = nodes // 3 // SUPERPOD * SUPERPOD
    flat = nodes - in_superpods
    leaf = LEAF if flat > 2 * LEAF else max(2, flat // 3)
    leaves = -(-flat // leaf)
    superpods = in_superpods // SUPERPOD
    racks_each = SUPERPOD // RACK
    rows: list[list[Any]] = [
        [f"a2-{row:05d}" if nodes > 100 else f"a2-{row}", 0, -1, -1, row // leaf, CHIPS] for row in range(flat)
    ]
    rows += [
        [
            f"a3-{row:05d}",
            1,
            row // SUPERPOD,
            row // SUPERPOD * racks_each + row % SUPERPOD // RACK,
            -1,
            SUPERPOD_CHIPS,
        ]
        for row in range(in_superpods)
    ]
    return {
        "superpods": [f"sp-{index}" for index in range(superpods)],
        "racks": [f"sp-{index // racks_each}-rack-{index % racks_each}" for index in range(superpods * racks_each)],
        "leaves": [f"leaf-{index}" for index in range(leaves)],
        "products": ["module910bx8", "module-a3x16"],
        "nodes": rows,
    }
