"""Rate limit for wrong tokens: five a second per address, then 429.

Only wrong tokens count. The right token works at any time, also from an address from which others
send wrong tokens, because many clients may share one address behind a proxy.
"""

from __future__ import annotations

import logging
from ipaddress import IPv6Address

from schedo.errors import Overloaded

log = logging.getLogger("schedo.web")

PER_SECOND = 5
_ADDRESSES_MAX = 1_024  # the most recent ones
_NETWORK_BITS = 64  # one client usually has a whole IPv6 network


class _Bucket:
    """The remaining guesses of an address."""

    __slots__ = ("at", "is_empty", "left")

    def __init__(self, at: float) -> None:
        self.at = at
        self.left = float(PER_SECOND)
        self.is_empty = False  # has been empty since it was full


class TokenThrottle:
    """A token bucket for each address that recently sent a wrong token."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}  # the most recently used one is last

    def count(self, address: str, now_s: float) -> None:
        """Count a wrong token at this monotonic time; raise Overloaded if there were too many."""
        network = _network(address)
        bucket = self._buckets.pop(network, None)
        if bucket is None:
            bucket = _Bucket(now_s)
            if len(self._buckets) >= _ADDRESSES_MAX:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[network] = bucket
        bucket.left = min(bucket.left + (now_s - bucket.at) * PER_SECOND, PER_SECOND)
        bucket.at = now_s
        if bucket.left == PER_SECOND:
            bucket.is_empty = False
        if bucket.left >= 1:
            bucket.left -= 1
            return
        if not bucket.is_empty:
            bucket.is_empty = True
            log.warning("more than %d wrong tokens a second come from %s", PER_SECOND, network)
        raise Overloaded("too many wrong tokens came from this address; send the right one")


def _network(address: str) -> str:
    """Return the key of one client: an IPv4 address, or the network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        whole = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)
    rest = 128 - _NETWORK_BITS
    return f"{IPv6Address(int(whole) >> rest << rest)}/{_NETWORK_BITS}"
