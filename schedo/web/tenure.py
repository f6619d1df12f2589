"""How this server became the active one, for the metrics."""

from __future__ import annotations

from typing import NamedTuple


class Tenure(NamedTuple):
    """takeovers: of this store so far; takeover_us: how long this server's own one took."""

    takeovers: int = 0
    takeover_us: int = 0  # 0: it found the store free


NO_TAKEOVER = Tenure()
