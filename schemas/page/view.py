"""The picture of a cell at one moment. Times are milliseconds since 1970; bit i of a mask is chip i."""

from msgspec import UNSET, Struct, UnsetType

from berth.schemas.programs.shape import Shape, Whole


class NodePlace(Struct, frozen=True, array_like=True, gc=False):
    """What a node is, and where. Indexes point into the lists of :class:`Layout`; -1: none."""

    name: str
    product: int
    superpod: int
    rack: int
    leaf: int
    chips: int
    """Chip slots: one more than the highest chip number."""


class Layout(Shape, frozen=True, kw_only=True):
    """Nodes and where they are, by SuperPoD, rack, leaf switch and name. A node's row is its index in ``nodes``."""

    superpods: list[str] = []
    racks: list[str] = []
    leaves: list[str] = []
    products: list[str] = []
    nodes: list[NodePlace] = []


class NodeRow(Struct, frozen=True, array_like=True, gc=False):
    """State of a node."""

    level: str
    """Health: ``ok``, ``sub-healthy``, ``no-new-work`` or ``evict``. More may follow."""
    flags: int
    """Bit 0: not ready; bit 1: cordoned; bit 2: gone, while a job still holds chips of it."""
    drained_ms: int
    """From when on it is drained; 0 if it is not."""
    owners: list[int]
    """For each chip slot 0 if nobody has it, the number of a job, or -1 for a job that the reader may not see. Of jobs
    that share a chip the lowest number."""
    unhealthy: int = 0
    network_unhealthy: int = 0
    releasing: int = 0
    """Chips whose pods end, or were told to leave with all of their job."""
    withheld: int = 0
    """Chips that the node itself does not offer."""
    shared: int = 0
    """Chips of which jobs hold quotas."""
    reserved: int = 0
    """Chips that a job gets which recovers."""
    absent: int = 0
    """Slots without a chip."""
    sharers: list[tuple[int, list[int]]] = []
    """Chips with several owners: chip, and the numbers of the jobs, ascending."""
    unnamed: int = 0
    """Number of its free chips that pods have which name none: which ones is not known."""


class Job(Shape, frozen=True, kw_only=True):
    """A job, or pods of another scheduler that hold chips."""

    n: int
    """Its number, which no other job of the same stream or recording gets."""
    namespace: str
    name: str
    uid: str
    phase: str
    """``waiting``, ``placed``, ``bound``, ``running``, ``ending``, ``succeeded``, ``failed``, ``cancelled`` or
    ``rejected``. More may follow."""
    code: str = ""
    """Code of the reason; empty without."""
    sentence: str = ""
    """Why it waits, was rejected, or has no place for some ranks."""
    warning: str = ""
    queue: str = ""
    priority: int = 0
    pods: int = 0
    chips: int = 0
    """Chips of all pods."""
    submitted_ms: Whole = 0
    """When it was first requested; 0 if unknown."""
    since_ms: Whole = 0
    """When it was last decided on: its request, its placement or its end. Of a job that waits its last refusal, which
    every try renews."""
    attempt: int = 0
    step: int = 0
    """Newest step of a recovery in this attempt; 0 for none."""
    position: int = 0
    """Position in the queue, from 1 on, when this was sent; 0 if it does not wait. It moves with ``queue``."""
    is_plain: bool = False
    """It has no chips and waits in a queue of its own, behind those with chips in ``queue``."""
    is_foreign: bool = False
    """Placed by another scheduler."""
    expected_start_ms: int | UnsetType = UNSET


class Fault(Shape, frozen=True, kw_only=True):
    """A fault of a node, or of chips of it."""

    at_ms: Whole = 0
    """Last report of its source; 0 if unknown."""
    since_ms: Whole = 0
    """Since when the node has it; 0 if unknown."""
    node: int
    """Row of the node; -1 if it has none."""
    place: str
    """Node and chips, in words."""
    kind: str
    """As ``berth faults`` names it."""
    level: str
    """``unhealthy``, ``recovering``, ``network-unhealthy``, ``sub-healthy``, ``no-new-work``, ``evict``, ``not-ready``
    or ``gone``. More may follow."""
    chips: list[int] = []
    """Empty for the whole node."""
    sentence: str = ""
    """What its source reports; empty if it gives no reason."""
    jobs: list[int] = []
    """Numbers of the jobs that hold these chips, ascending."""


class Reservation(Shape, frozen=True, kw_only=True):
    """Places that a job gets which recovers, or for which others leave."""

    job: int
    """Number of the job; -1 for one that the reader may not see."""
    until_ms: Whole = 0
    """Until when at the latest; 0: until its old pods are gone."""
    nodes: list[int]
    """Rows, ascending."""


class View(Shape, frozen=True, kw_only=True):
    """Everything at one moment."""

    cell: str = ""
    version: int
    """Grows with every change that is sent."""
    at_ms: Whole
    facts_seq: Whole = 0
    """Newest fact in it ..."""
    ledger_seq: Whole = 0
    """... and newest record."""
    layout: Layout
    nodes: list[NodeRow]
    """In the order of ``layout.nodes``."""
    jobs: list[Job]
    """Those that are not over, the newest that are, and other owners of chips; by number."""
    queue: list[int]
    """Numbers of the jobs that wait, in the order of the queue."""
    faults: list[Fault] = []
    reservations: list[Reservation] = []
    has_queues: bool = False
    """Somebody declared queues that mean something, whether or not the cell applies them."""
    is_partial: bool = False
    """The reader may not see all namespaces: jobs of the others are left out, and -1 as owners."""


class Change(Shape, frozen=True, kw_only=True):
    """The difference to the version before. A list that did not change is left out."""

    version: int
    at_ms: Whole
    facts_seq: Whole = 0
    ledger_seq: Whole = 0
    nodes: list[tuple[int, NodeRow]] = []
    """Rows that changed, ascending."""
    jobs: list[Job] = []
    """Jobs that came or changed, by number. A move in the queue alone is no change."""
    gone: list[int] = []
    """Numbers of jobs that left the list, ascending."""
    queue: list[int] | UnsetType = UNSET
    faults: list[Fault] | UnsetType = UNSET
    reservations: list[Reservation] | UnsetType = UNSET
    has_queues: bool | UnsetType = UNSET


class Link(Shape, frozen=True, kw_only=True):
    """A link to another site."""

    name: str
    url: str
    """Address with ``{namespace}``, ``{job}``, ``{pod}`` or ``{node}``, which percent-encoded names replace."""


class PageSettings(Shape, frozen=True, kw_only=True):
    """What the settings of the gateway say of the page."""

    links: list[Link] = []
