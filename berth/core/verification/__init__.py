"""Verification: what is stored of a cell, compared with its ledger."""
