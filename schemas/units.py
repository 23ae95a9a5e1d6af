"""Types of numbers with a unit, so that signatures name it."""

from typing import Annotated

from msgspec import Meta

UnixMs = Annotated[int, Meta(ge=0, description="milliseconds since 1970-01-01T00:00:00Z")]
Sequence = Annotated[int, Meta(ge=0, description="stream sequence; 0 means: none yet")]
CpuMilli = Annotated[int, Meta(ge=0, description="thousandths of a CPU")]
MemoryMib = Annotated[int, Meta(ge=0, description="mebibytes")]
