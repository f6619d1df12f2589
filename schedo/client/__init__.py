"""Clients for programs that only submit jobs: Client blocks, AsyncClient is for asyncio.

Loaded when first used, so that the one does not pay for the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedo.client.asynchronous import AsyncClient, AsyncJobHandle
    from schedo.client.problems import JobCancelled, JobFailed, Unreachable
    from schedo.client.sync import Client, JobHandle

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "Client",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "Unreachable",
]

_HOMES = {
    "AsyncClient": "asynchronous",
    "AsyncJobHandle": "asynchronous",
    "Client": "sync",
    "JobCancelled": "problems",
    "JobFailed": "problems",
    "JobHandle": "sync",
    "Unreachable": "problems",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
