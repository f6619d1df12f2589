"""The URL by which browsers reach a server, through a proxy."""

from __future__ import annotations

import re
from typing import NamedTuple

_URL = re.compile(
    r"(https?)://(([a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?)"
    r"((?:/[a-z0-9._~-]+)*)/?",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class PublicUrl(NamedTuple):
    """A URL of a host and a path."""

    scheme: str
    host: str  # with the port, unless it is the scheme's
    prefix: str  # of all paths: empty, or such as /schedo

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def __str__(self) -> str:
        return self.origin + self.prefix


def parse_public_url(text: str) -> PublicUrl:
    """Return the parts of the URL; raise ValueError if it has more than a host and a path."""
    found = _URL.fullmatch(text)
    if found is None or {".", ".."} & set(found[6].split("/")):
        raise ValueError("expected a URL like https://ops.example.org/schedo")
    scheme = found[1].lower()
    return PublicUrl(scheme, found[2].lower().removesuffix(_DEFAULT_PORTS[scheme]), found[6])
