"""Benchmarks: `make bench` prints the tables, `make bench-quick` the short ones."""
