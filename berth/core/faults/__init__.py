"""Diagnosis of faults: which pods are faulty and why, and which nodes are. Nothing here decides what is done."""
