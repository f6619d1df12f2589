"""Reads the certificate of the server and its key."""

from __future__ import annotations

import hashlib
import ssl

from schedo.client.tokens import read_private
from schedo.errors import Invalid
from schedo.web.settings import Tls

FILE_CHARACTERS_MAX = 1_048_576


def read_tls(cert: str, key: str, *, has_grpc: bool = False) -> Tls:
    """Return the TLS of a server, 1.2 or newer; raise Invalid if the files cannot be used."""
    chain = _read_text(cert)
    secret = read_private(key, "tls_key", FILE_CHARACTERS_MAX)
    if "-----BEGIN CERTIFICATE-----" not in chain:
        raise Invalid(f"tls_cert = {cert!r}: the file contains no certificate in PEM format")
    if "PRIVATE KEY-----" not in secret:
        raise Invalid(f"tls_key = {key!r}: the file contains no private key in PEM format")
    if "ENCRYPTED" in secret:
        raise Invalid(
            f"tls_key = {key!r}: the key has a passphrase, which a server cannot type; fix:"
            f" openssl pkey -in {key} -out plain.key"
        )
    return Tls(
        _make_context(cert, key, "http/1.1"),
        hashlib.sha256(f"{chain}\0{secret}".encode()).digest(),
        _make_context(cert, key, "h2") if has_grpc else None,
    )


def _make_context(cert: str, key: str, protocol: str) -> ssl.SSLContext:
    """Return the context for connections that speak this protocol, by its name in ALPN."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([protocol])
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise Invalid(_explain(error, cert, key)) from error
    return context


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(FILE_CHARACTERS_MAX)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Invalid(f"tls_cert = {path!r}: cannot be read: {reason}") from error


def _explain(error: ssl.SSLError, cert: str, key: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls_key = {key!r}: it is not the key of the first certificate in {cert!r}"
    return f"tls_cert = {cert!r}, tls_key = {key!r}: OpenSSL cannot use them: {error}"
