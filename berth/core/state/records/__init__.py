"""Records of the ledger: what each entry of a round does, and whether a round may be folded."""
