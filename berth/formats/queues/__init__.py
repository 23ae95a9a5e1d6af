"""Queues from files and objects: those of Volcano, and Berth's own."""
