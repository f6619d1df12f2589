"""The passing of a store and its listener from one server process to the next."""
