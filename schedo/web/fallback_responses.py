"""The responses that a connection sends without the application."""

from __future__ import annotations

from schedo.protocol.problems import PROBLEM_TYPE, ProblemKind, render_kind


def render_refusal(kind: ProblemKind) -> bytes:
    """Return the response to a malformed or refused request."""
    body = render_kind(kind)
    head = (
        f"HTTP/1.1 {kind.status} {kind.title}\r\n"
        f"content-type: {PROBLEM_TYPE.decode()}\r\n"
        f"content-length: {len(body)}\r\n"
        "x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
