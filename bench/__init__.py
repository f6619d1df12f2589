"""Benchmarks: `make bench` prints the tables, `make bench-quick` the short ones.

The scripts in bench/server measure a whole server from outside; bench/README.md has the results.
"""
