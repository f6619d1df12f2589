"""JSON that a user types or gives as a file."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str) -> Any:
    """Return the value of the text; raise ValueError with what is wrong."""
    try:
        return json.loads(text)
    except RecursionError:
        from schedo.core.strict_json import too_deep  # rarely needed, and slow to import

        raise ValueError(str(too_deep("the text"))) from None
    except ValueError as error:
        raise ValueError(f"the text is not JSON: {error}") from None
