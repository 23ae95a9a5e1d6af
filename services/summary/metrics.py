"""What the summary writer counts."""

from typing import Final

from berth.runtime.metrics import counter, gauge

JOBS: Final = gauge("summary_jobs", "Jobs that have a summary.")
WRITES: Final = counter("summary_writes_total", "ConfigMaps that were written or deleted.")
FAILURES: Final = counter("summary_failures_total", "Tries to write the summary of a job that failed.")
