"""What a page's heap is made of: the code that V8 has compiled, and what the page keeps."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from playwright.async_api import CDPSession

_CODE = "code"
_OUTSIDE = "native"  # of the browser, which the size of the heap leaves out


class HeapParts(NamedTuple):
    """The parts of a heap, in bytes."""

    code: int
    kept: int


async def read_parts(session: CDPSession) -> HeapParts:
    """Collect the garbage of a page; return the parts of what is left of its heap."""
    chunks: list[str] = []

    def receive(event: dict[str, Any]) -> None:
        chunks.append(event["chunk"])

    session.on("HeapProfiler.addHeapSnapshotChunk", receive)
    await session.send("HeapProfiler.takeHeapSnapshot", {"reportProgress": False})
    session.remove_listener("HeapProfiler.addHeapSnapshotChunk", receive)
    return _sum_parts(json.loads("".join(chunks)))


def _sum_parts(snapshot: dict[str, Any]) -> HeapParts:
    meta = snapshot["snapshot"]["meta"]
    fields, kinds = meta["node_fields"], meta["node_types"][0]
    numbers = snapshot["nodes"]
    types = numbers[fields.index("type") :: len(fields)]
    sizes = numbers[fields.index("self_size") :: len(fields)]
    bytes_of = dict.fromkeys(kinds, 0)
    for kind, size in zip(types, sizes, strict=True):
        bytes_of[kinds[kind]] += size
    kept = sum(size for kind, size in bytes_of.items() if kind not in (_CODE, _OUTSIDE))
    return HeapParts(bytes_of[_CODE], kept)
