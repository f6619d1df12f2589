"""What tests of schedo, and of programs built on it, need: time that only moves when told."""
