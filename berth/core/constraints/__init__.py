"""Constraints between pods and of pods on nodes, beside chips: who is where, and which nodes they leave to a pod."""
