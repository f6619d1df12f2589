"""Benchmarks: `make bench` prints the full tables, `make bench-quick` those of short runs.

The scripts in bench/server measure a whole server from outside; bench/README.md has the results.
"""
