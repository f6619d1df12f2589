"""Measurements of a whole server: the real `schedo serve` as a process, driven from another one.

Each is a script: `python -m bench.server.NAME [--json] [--quick]`. It prints its floor, measured in
the same run, and the ratio to it, and fails unless every job was done exactly once and is found in
the store after a restart of the server. `drift` alone starts none: the engine runs in the script.
"""
