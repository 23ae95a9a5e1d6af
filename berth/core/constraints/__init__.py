"""Constraints between pods and of pods on nodes, beside chips: where pods are, and which nodes remain for others."""
