"""Pages of a list with the parameter `fields`: each item has some of its fields."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Struct, UnsetType


def make_light_page(page: type[Struct], item: type[Struct]) -> type[Struct]:
    """Return the type of such a page. page: that of all fields; its first field is `items`."""
    light_item = msgspec.defstruct(
        f"Light{item.__name__}",
        [
            (field.encode_name, field.type | UnsetType, UNSET)
            for field in msgspec.structs.fields(item)
        ],
        forbid_unknown_fields=True,
    )
    return msgspec.defstruct(
        f"Light{page.__name__}",
        [
            ("items", list[light_item]),  # type: ignore[valid-type]
            *((field.name, field.type, UNSET) for field in msgspec.structs.fields(page)[1:]),
        ],
        forbid_unknown_fields=True,
    )
