"""Every answer that a test of the web gets is one of those that the table of operations lists."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from schedo.protocol.error_statuses import list_errors
from schedo.protocol.operation import JSON_TYPE, Operation, list_shapes
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.problems import PROBLEM_TYPE, ProblemResponse

ANY_OPERATION = frozenset({421, 500})  # of a wrong Host, and of a bug: `default` in the document


def check_response(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    """Raise ValidationError or AssertionError if the document does not describe this answer."""
    operation = find_operation(method, path)
    if content_type == PROBLEM_TYPE.decode():
        assert msgspec.json.decode(body, type=ProblemResponse).status == status
        named = {error.status for error in list_errors(operation)} if operation else {status}
        assert status in named | ANY_OPERATION, f"{operation} has no {status}"
        return
    if operation is None or content_type != JSON_TYPE:
        return
    kinds = list_shapes(operation.responses[status])
    if not kinds:
        return
    for each in kinds[:-1]:
        try:
            msgspec.json.decode(body, type=each)
        except msgspec.ValidationError:
            continue
        return
    msgspec.json.decode(body, type=kinds[-1])


def find_operation(method: str, path: str) -> Operation | None:
    """Return the operation of a request, or None for a request that none takes."""
    found = [
        operation
        for operation in OPERATIONS
        if operation.method == method and _pattern(operation.path).fullmatch(path)
    ]
    return max(found, key=lambda operation: len(operation.path), default=None)


@cache
def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"{[a-z]+}", path)
    return re.compile("[^/]+".join(map(re.escape, parts)))
