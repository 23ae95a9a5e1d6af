"""Leaf switches in a round: plans of gangs, and new places for pods that leave."""
