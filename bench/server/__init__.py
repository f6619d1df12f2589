"""Measurements of a whole server: a real `schedo serve` process, driven by another process.

Each measurement is a script: `python -m bench.server.NAME [--json] [--quick]`. It prints its floor,
measured in the same run, and the ratio to it. It fails unless every job ran exactly once and is in
the store after a restart of the server. Only `drift` starts no server: it runs the engine itself.
"""
