"""Lab: a simulated cluster, servers and cells on this machine, and their commands, for trials and tests.

Nothing of a real cell imports it: the command line and the process of a cell find it by entry points, where the extra
``lab`` is installed.
"""
