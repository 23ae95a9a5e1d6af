"""The topologies by which gangs are placed, each in a folder of its own."""
