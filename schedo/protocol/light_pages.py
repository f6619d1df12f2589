"""Pages of a list with the parameter `fields`: each item has some of its fields."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType


class LightPage(NamedTuple):
    """Such a page. page: that of all fields, whose first field is `items`.

    Only the API document and the tests need its type, so the server keeps none in memory.
    """

    page: type[Struct]
    item: type[Struct]


@cache
def make_type(light: LightPage) -> type[Struct]:
    """Return the type of the page."""
    item = msgspec.defstruct(
        f"Light{light.item.__name__}",
        [
            (field.encode_name, field.type | UnsetType, UNSET)
            for field in msgspec.structs.fields(light.item)
        ],
        forbid_unknown_fields=True,
    )
    return msgspec.defstruct(
        f"Light{light.page.__name__}",
        [
            ("items", list[item]),  # type: ignore[valid-type]
            *((field.name, field.type, UNSET) for field in msgspec.structs.fields(light.page)[1:]),
        ],
        forbid_unknown_fields=True,
    )
