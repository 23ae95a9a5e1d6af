"""Queue: the order of waiting gangs, and which classes of them sleep.

A request class that was refused sleeps: its gangs are not scored again until something on some node changed that lets
the node take one of its pods, a missing shard's wait is over, or a new epoch begins. Sleep is a function of the log, so
a replay sleeps and wakes alike.

Gangs that a rule refuses are held one by one: in a class they differ in run time, or in whom they belong to. Under keys
one is held while its class sleeps and wakes, and gets a verdict once released. In strict order a gang behind the first
one that sleeps is not taken, except for its first verdict.

Gangs without chips have a lane of their own, which is never strict: they wait behind no gang with chips, and none of
these waits behind them. A round takes from both lanes.

Longer than 400 lines because every way in which a gang comes, waits, changes its class and leaves is here.
"""

import bisect
import heapq
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from berth.core.changes import Changes
from berth.core.gangs import ClassKey, Gang, WaitKey
from berth.core.scheduling.gang_class import LINE, ORDER, Entry, GangClass, HeldGangs, Hold, Released, Sleep
from berth.core.scheduling.merged_lines import by_name, merged
from berth.core.scheduling.turns import Turns, in_lines, in_turns
from berth.core.state.waiting_dump import SleeperDump


class Queue:
    """Waiting gangs by class.

    Args:
        strict: No gang is placed before one that waits ahead of it.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.is_strict = strict
        self._held = HeldGangs()
        self._classes: dict[WaitKey, GangClass] = {}
        self._class_of: dict[str, WaitKey] = {}
        self._uid_of: dict[tuple[str, str], str] = {}
        """Gang (uid) that waits under a name."""
        self.awake: dict[WaitKey, None] = {}
        self.asleep_with_fresh: dict[WaitKey, None] = {}
        """Sleeping classes with gangs that had no verdict yet."""
        self.woken = 0
        """Classes woken so far."""

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._class_of

    @property
    def has_work(self) -> bool:
        """Whether a round could decide something."""
        if self.is_strict:
            return bool(self.asleep_with_fresh) or self._is_strict_awake() or self._is_plain_awake()
        classes = self._classes
        awake = any(len(classes[key].held) < len(classes[key].gangs) for key in self.awake)
        return awake or bool(self.asleep_with_fresh)

    def put(self, gang: Gang) -> bool:
        """Add a gang, or replace its old form; its place follows from its order alone.

        Returns:
            Whether that may help gangs that are held; see :meth:`remove`.
        """
        unblocked = self.remove(gang.uid)
        key = gang.wait_key
        members = self._classes.get(key)
        if members is None:
            members = self._classes[key] = GangClass(key, is_plain=gang.is_plain)
            self.awake[key] = None
        members.gangs[gang.uid] = gang
        entry = (gang.order, gang.uid)
        if not members.line or members.line[-1] < entry:
            members.line.append(entry)
        else:
            bisect.insort(members.line, entry)
        self._class_of[gang.uid] = key
        self._uid_of[gang.namespace, gang.name] = gang.uid
        if gang.fresh:
            members.fresh[gang.uid] = None
            if members.sleeps:
                self.asleep_with_fresh[key] = None
        return unblocked

    def remove(self, uid: str) -> bool:
        """Take a gang out, wherever it is.

        Returns:
            Whether that may help gangs that are held: the gang slept or was held, and others are held still.
        """
        key = self._class_of.pop(uid, None)
        if key is None:
            return False
        members = self._classes[key]
        is_held = uid in members.held and self._held.pop(uid) is not None
        gang = members.gangs.pop(uid)
        self._uid_of.pop((gang.namespace, gang.name), None)
        members.gone += 1
        members.fresh.pop(uid, None)
        has_waited = not gang.fresh and (members.sleeps or is_held)  # a fresh one may have come and gone unseen
        unblocked = has_waited and len(self._held) > 0
        if not members.fresh:
            self.asleep_with_fresh.pop(key, None)
        if not members.gangs:
            del self._classes[key]
            self.awake.pop(key, None)
        else:
            self._wake_without_sleepers(members)
        return unblocked

    def gangs(self) -> list[Gang]:
        """All waiting gangs, in order of uid."""
        return [self._classes[self._class_of[uid]].gangs[uid] for uid in sorted(self._class_of)]

    def of_class(self, key: WaitKey) -> Iterable[Gang]:
        """Waiting gangs of a class."""
        return self._classes[key].gangs.values()

    def representatives(self, *, one_each: bool) -> Iterator[Gang]:
        """Gangs that had a verdict: the first of each class, or all of them, class by class.

        Args:
            one_each: One gang of a class stands for all.
        """
        for members in self._classes.values():
            known = members.known()
            for _, gang in itertools.islice(known, 1) if one_each else known:
                yield gang

    def waits_aside(self, key: WaitKey) -> bool:
        """Whether a class blocks no gang in strict order, and waits behind none."""
        members = self._classes[key]
        return members.never or members.is_plain

    def move(self, gang: Gang) -> None:
        """Give a waiting gang another class. A class that is new sleeps as the one before; else it is as it was."""
        before = self._classes[self._class_of[gang.uid]]
        known, sleep, sleeps = before.gangs[gang.uid], before.sleep, before.sleeps
        held = self._held.pop(gang.uid)
        key = gang.wait_key
        is_new = key not in self._classes
        gang.fresh = known.fresh
        self.put(gang)
        if held is not None:
            self.hold(gang.uid, retry_at_ms=held.retry_at_ms, keys=held.keys)
        elif is_new and sleeps and not gang.fresh:
            self.restore_sleep(key, sleep)

    def keep_only(self, name: tuple[str, str], uid: str) -> bool:
        """Take out the gang that waits under a name, unless it is ``uid``; returns the same as :meth:`remove`."""
        waits = self._uid_of.get(name)
        return waits is not None and waits != uid and self.remove(waits)

    def tried(self) -> Iterable[WaitKey]:
        """Classes of which a round may take gangs."""
        return itertools.chain(self.awake, self.asleep_with_fresh)

    def take(
        self,
        *,
        gangs_max: int,
        bytes_max: int,
        most: Callable[[ClassKey], int] | None = None,
        accepts: Callable[[ClassKey], bool] | None = None,
        plain: bool = False,
        turns: Turns | None = None,
    ) -> list[Gang]:
        """Gangs of one lane for a round, in queue order; they stay in the queue. At least one if there is any.

        Of a sleeping class only the gangs that never had a verdict are taken.

        Args:
            gangs_max: Most gangs.
            bytes_max: Most bytes of their placements, unless one alone has more.
            most: Most gangs of a class that can be decided before it sleeps, at least one; of those behind them only
                the ones that never had a verdict are taken.
            accepts: Classes of which gangs are taken; None for all.
            plain: Take from the lane without chips.
            turns: Turns of the queues; None: none of them comes before another.
        """
        is_strict = self.is_strict and not plain
        head = self.head() if is_strict else None
        classes = self._classes
        lines = [
            (members.line[0][0], number, members)  # a bound: the first entries may be of gangs that left
            for number, key in enumerate(self.tried())
            if (members := classes[key]).is_plain == plain
            and len(members.held) < len(members.gangs)
            and (accepts is None or accepts(key.request_class))
        ]

        def entries_of(members: GangClass) -> Iterable[Entry]:
            if members.sleeps:
                return members.first_fresh(gangs_max)
            if is_strict:
                return self._strict_line(members, gangs_max, head)
            return (
                members.free()
                if members.held
                else self._some(members, most(members.key.request_class) if most else gangs_max)
            )

        taken: list[Gang] = []
        size = 0
        entries = merged(lines, entries_of) if turns is None else in_turns(by_name(lines, entries_of, LINE), turns)
        for _, gang in entries:
            size += gang.bytes_in_record
            if taken and (len(taken) == gangs_max or size > bytes_max):
                break
            taken.append(gang)
        return taken

    def refused(self, uid: str, *, retry_at_ms: int, never: bool = False, by_any_change: bool = False) -> None:
        """Put the class of a refused gang to sleep.

        Args:
            uid: The gang.
            retry_at_ms: When to try again although nothing got better; 0 for never.
            never: It waits for another cluster, not for room.
            by_any_change: Any change of a node may help it, also one for the worse.
        """
        key = self._class_of.get(uid)
        if key is None:
            return
        members = self._classes[key]
        members.fall_asleep(Sleep(retry_at_ms, never, by_any_change))
        self._held.let_go(members, uid)
        self.awake.pop(key, None)
        if members.fresh:
            self.asleep_with_fresh[key] = None
        self.seen(uid)

    def seen(self, uid: str) -> None:
        """Note that a gang had a verdict that leaves its class as it is."""
        key = self._class_of.get(uid)
        if key is None:
            return
        members = self._classes[key]
        members.gangs[uid].fresh = False
        members.fresh.pop(uid, None)
        if not members.fresh:
            self.asleep_with_fresh.pop(key, None)

    def hold(self, uid: str, *, retry_at_ms: int, keys: tuple[str, ...] = ()) -> None:
        """Keep a gang back that had a verdict, until :meth:`release`; without keys, nothing if its class sleeps.

        Args:
            uid: The gang.
            retry_at_ms: When to try again although nothing has released it; 0 for never.
            keys: Keys that release it; without any, any news does.
        """
        self.seen(uid)
        key = self._class_of.get(uid)
        members = self._classes[key] if key is not None else None
        if members is not None and (keys or not members.sleeps):
            self._held.put(uid, Hold(members, retry_at_ms, keys))
            self._wake_without_sleepers(members)

    def hold_again(self, one: Released) -> None:
        """Hold a gang as it was before :meth:`release`, unless it left or changed."""
        if self.gang(one.gang.uid) is one.gang:
            self.hold(one.gang.uid, retry_at_ms=one.retry_at_ms, keys=one.keys)

    def release(self, woken: Mapping[str, None], *, is_news: bool, time_ms: int) -> list[Released]:
        """Release gangs that are held, as :meth:`HeldGangs.release` does; those with keys have no verdict any more."""
        released = self._held.release(woken, is_news=is_news, time_ms=time_ms)
        for gang in (one.gang for one in released if one.keys):
            members = self._classes[gang.wait_key]
            gang.fresh = True
            members.fresh[gang.uid] = None
            if members.sleeps:
                self.asleep_with_fresh[members.key] = None
        return released

    def may_release(self, changes: Changes) -> bool:
        """Whether changes release gangs that are held, besides those that wake classes."""
        return self._held.may_release(changes)

    @property
    def held(self) -> list[SleeperDump]:
        """Gangs that are held, and when to try again, by uid."""
        return self._held.dump()

    @property
    def is_holding(self) -> bool:
        """Whether gangs are held, whatever releases them."""
        return len(self._held) > 0

    def is_held(self, uid: str) -> bool:
        """Whether a gang is held."""
        return uid in self._held

    def class_of(self, uid: str) -> WaitKey | None:
        """Class of a gang; None when it does not wait."""
        return self._class_of.get(uid)

    def gang(self, uid: str) -> Gang | None:
        """A gang that waits; None for any other."""
        key = self._class_of.get(uid)
        return None if key is None else self._classes[key].gangs[uid]

    def is_fresh(self, uid: str) -> bool:
        """Whether a gang waits and had no verdict."""
        key = self._class_of.get(uid)
        return key is not None and uid in self._classes[key].fresh

    def head(self) -> Gang | None:
        """The first gang in order that found no room and sleeps, those left out that wait for another cluster."""
        return next(self.waiting_for_room(held=False), None)

    def waiting_for_room(self, *, held: bool, tried: Sequence[Gang] = (), turns: Turns | None = None) -> Iterator[Gang]:
        """Gangs that had a verdict and are not tried now, in order, those left out that wait for another cluster.

        Gangs of the lane without chips are left out, too. Those that are ``held`` for news of any kind may come among
        them, and those that are ``tried``; in ``turns`` where queues have any.
        """
        lines: dict[str, list[Iterable[Entry]]] = {}
        for one in self._classes.values():
            if one.sleeps and not one.never and not one.is_plain:
                lines.setdefault(one.key.line, []).append(one.asleep())
        few = [*tried, *(self._held.for_room() if held else ())]
        for line, gangs in itertools.groupby(
            sorted(few, key=operator.attrgetter("line", "order")), key=operator.attrgetter("line")
        ):
            lines.setdefault(line, []).append([(gang.order, gang) for gang in gangs])
        return (gang for _, gang in in_lines(lines, turns))

    def wake(self, helps: Callable[[WaitKey], bool], *, time_ms: int) -> list[tuple[WaitKey, Sleep]]:
        """Wake sleeping classes; returns which, and how they slept.

        Args:
            helps: Whether an event can help a class.
            time_ms: The moment: whose wait is over is woken.
        """
        woken: list[tuple[WaitKey, Sleep]] = []
        for key in self.sleeping():
            members = self._classes[key]
            sleep = members.sleep
            is_due = bool(sleep.retry_at_ms and time_ms >= sleep.retry_at_ms)
            if is_due or helps(key):
                woken.append((key, sleep))
                self._wake(members)
        self.woken += len(woken)
        return woken

    def sleep_of(self, key: WaitKey) -> Sleep:
        """How a class sleeps."""
        return self._classes[key].sleep

    def restore_sleep(self, key: WaitKey, sleep: Sleep) -> None:
        """Put a class back to sleep, as if it had not been woken; one that is gone stays gone."""
        members = self._classes.get(key)
        if members is None:
            return
        members.fall_asleep(sleep)
        self.awake.pop(key, None)
        if members.fresh:
            self.asleep_with_fresh[key] = None

    def dump(self) -> tuple[list[str], list[SleeperDump]]:
        """Gangs (uid) with a verdict, and the classes that sleep, each by its first such gang; in order of uid."""
        classes = self._classes.values()
        known = sorted(gang.uid for members in classes for _, gang in members.known())
        first = ((min(gang.uid for _, gang in one.asleep()), one.sleep) for one in classes if one.sleeps)
        return known, sorted(SleeperDump(uid, *sleep) for uid, sleep in first)

    def load(self, known: Iterable[str], sleeping: Iterable[SleeperDump], held: Iterable[SleeperDump] = ()) -> None:
        """Become what :meth:`dump` and :attr:`held` gave; the gangs themselves must have been put before."""
        for uid in known:
            self.seen(uid)
        for sleeper in sleeping:
            key = self._class_of.get(sleeper.uid)
            if key is not None:
                self.restore_sleep(key, Sleep(sleeper.retry_at_ms, sleeper.never, sleeper.by_any_change))
        for one in held:
            self.hold(one.uid, retry_at_ms=one.retry_at_ms, keys=one.keys)

    @property
    def waits_for_time(self) -> bool:
        """Whether some class sleeps until a time, or a gang is held until one."""
        return any(self._moments())

    @property
    def retry_at_ms(self) -> int:
        """First moment until which some class sleeps or a gang is held; 0 when none waits for time.

        In strict order that of the head, and of classes that block no gang: gangs behind the head wait for it.
        """
        if self.is_strict:
            head = self.head()
            first = self._classes[head.wait_key].retry_at_ms if head is not None else 0
            classes = self._classes.values()
            aside = (one.retry_at_ms for one in classes if one.sleeps and (one.never or one.is_plain))
            return min(filter(None, (first, *aside)), default=0)
        return min(filter(None, self._moments()), default=0)

    def _moments(self) -> Iterator[int]:
        """When to try again although nothing got better; 0 for never."""
        yield from (members.retry_at_ms for members in self._classes.values() if members.sleeps)
        yield from self._held.moments()

    def sleeping(self) -> list[WaitKey]:
        """Classes that sleep."""
        return [key for key, members in self._classes.items() if members.sleeps]

    def _wake(self, members: GangClass) -> None:
        members.wake()
        self.awake[members.key] = None
        self.asleep_with_fresh.pop(members.key, None)

    def _wake_without_sleepers(self, members: GangClass) -> None:
        """Wake a class if none of the gangs is left whose refusal put it to sleep."""
        if members.sleeps and len(members.fresh) + len(members.held) == len(members.gangs):
            self._wake(members)

    def _is_strict_awake(self) -> bool:
        head = self.head()
        classes = (members for key in self.awake if not (members := self._classes[key]).is_plain)
        return any(True for members in classes for _ in self._strict_line(members, 1, head))

    def _is_plain_awake(self) -> bool:
        awake = (self._classes[key] for key in self.awake)
        return any(members.is_plain and len(members.held) < len(members.gangs) for members in awake)

    def _strict_line(self, members: GangClass, count: int, head: Gang | None) -> Iterator[Entry]:
        """Gangs of a class before the head, and behind it those that had no verdict yet."""
        for entry in members.free() if members.held else members.in_order():
            if head is not None and entry[0] >= head.order:
                break
            yield entry
        if head is not None:
            behind = [gang for uid in members.fresh if (gang := members.gangs[uid]).order > head.order]
            for gang in heapq.nsmallest(count, behind, key=lambda gang: gang.order):
                yield gang.order, gang

    def _some(self, members: GangClass, most: int) -> Iterator[Entry]:
        """The first gangs of a class in order, then those without a verdict so far: they get one in any case."""
        last: Entry | None = None
        for last in itertools.islice(members.in_order(), most):
            yield last
        gangs = [members.gangs[uid] for uid in members.fresh]
        behind = [(gang.order, gang) for gang in gangs if last is None or gang.order > last[0]]
        yield from sorted(behind, key=ORDER)
