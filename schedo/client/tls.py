"""TLS to a server: which certificates the client trusts, and what its errors mean."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache

from schedo.errors import Invalid

VARIABLE = "SCHEDO_CA_CERT"
# Codes of OpenSSL (X509_V_ERR_…): the certificate, or the last one of its chain, is from a CA that
# the client does not know.
_UNKNOWN_AUTHORITY = frozenset((18, 19, 20, 21))
# What OpenSSL says of a response without TLS; it depends on the version and on the first bytes.
_NOT_TLS = frozenset(
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL")
)


def client_context(ca_cert: str | None) -> ssl.SSLContext:
    """Return what a client needs for TLS; raise Invalid if the file cannot be used.

    ca_cert: a PEM file of the only authorities to trust; None: that of SCHEDO_CA_CERT, or else
        those of the system.
    """
    path = ca_cert or os.environ.get(VARIABLE) or None
    if path is None:
        return _make_context(None, 0)
    try:
        return _make_context(path, os.stat(path).st_mtime_ns)
    except ssl.SSLError as error:
        reason = "it contains no certificate in PEM format"
        raise Invalid(f"ca_cert = {path!r}: {reason}") from error
    except OSError as error:
        raise Invalid(f"ca_cert = {path!r}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=4)  # it takes 10 ms; a program may make a client for each call
def _make_context(path: str | None, changed_ns: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=path)


def explain_tls(error: ssl.SSLError) -> str:
    """Return what is wrong between this client and the server, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"its certificate is not accepted: {_lower(error.verify_message.rstrip('.'))}"
        if error.verify_code in _UNKNOWN_AUTHORITY:
            text += (
                "; if you trust it, the CA that signed it must be in the file of ca_cert=,"
                f" --ca-cert or {VARIABLE}"
            )
        return text
    if error.reason in _NOT_TLS:
        return "there is no TLS at this port; perhaps the URL must begin with http://"
    return _lower((error.reason or str(error)).replace("_", " ").lower())


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
