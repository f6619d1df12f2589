"""Compares the speed of two commits: `make bench-compare OLD=… NEW=…`."""
