"""Reads tokens of servers and clients: one line in a file that other users should not read.

Both sides refuse a token that could be guessed.
"""

from __future__ import annotations

import logging
import os
import re
import stat

from schedo.errors import Invalid

log = logging.getLogger("schedo")

TOKEN_CHARACTERS_MIN = 16
TOKEN_CHARACTERS_MAX = 4_096
_KINDS_MIN = 5  # different characters
_PLACEHOLDERS = ("changeme", "defaulttoken", "yourtoken", "replaceme", "password", "secrettoken")


def read_token(path: str) -> str:
    """Return the token in the file; raise Invalid if it is weak or other users can write it."""
    text = read_private(path, "token_file", TOKEN_CHARACTERS_MAX + 2)
    return check_token(text.removesuffix("\n").removesuffix("\r"), f"file {path}")


def read_private(path: str, setting: str, characters_max: int) -> str:
    """Return the file's first characters; raise Invalid if every user can write it.

    A file that every user can read is accepted with a warning, because the secrets of Docker and
    Kubernetes have the modes 0444 and 0644.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(characters_max)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Invalid(f"{setting} = {path!r}: cannot be read: {reason}") from error
    if mode & stat.S_IWOTH:
        raise Invalid(
            f"{setting} = {path!r}: every user of this machine can write it; fix: chmod 600 {path}"
        )
    if mode & stat.S_IROTH:
        log.warning(
            "%s = %r: every user of this machine can read it; to close it: chmod 600 %r, in"
            " Kubernetes `defaultMode: 0400` with `fsGroup`, in Docker Swarm `mode: 0400`",
            setting,
            path,
            path,
        )
    return text


def check_token(token: str, source: str) -> str:
    """Return the token; raise Invalid if it could be guessed or is not valid in a header."""
    fix = "make one with: openssl rand -hex 32"
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise Invalid(
            f"the token ({source}) has {len(token)} characters; at least {TOKEN_CHARACTERS_MIN} are"
            f" needed; {fix}"
        )
    if len(token) > TOKEN_CHARACTERS_MAX or not all("!" <= character <= "~" for character in token):
        raise Invalid(
            f"the token ({source}) must be one line of at most {TOKEN_CHARACTERS_MAX} visible ASCII"
            f" characters; {fix}"
        )
    plain = re.sub(r"[^a-z0-9]", "", token.lower())
    if any(word in plain for word in _PLACEHOLDERS) or len(set(token)) < _KINDS_MIN:
        raise Invalid(f"the token ({source}) is a placeholder that anyone could guess; {fix}")
    return token
