"""Kinds of workloads, a module for each; they are strangers to one another."""
