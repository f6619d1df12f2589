"""Test helpers for schedo and for programs built on it: virtual time and a store with faults."""
