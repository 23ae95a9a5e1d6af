"""Events of jobs for programs: what changed, derived from facts and ledger."""
