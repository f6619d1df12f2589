"""Traces and metrics of a server for an OpenTelemetry collector, by OTLP over HTTP.

A server imports this package only with --otel. Nothing here may delay a turn: the event loop notes
what a commit makes durable, and a thread of its own makes spans of the notes and sends them.
"""
