"""Certificates for tests, made by the command `openssl`."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair(NamedTuple):
    """The files of a certificate and of its key."""

    cert: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `schedo serve` for the pair."""
        return ("--tls-cert", str(self.cert), "--tls-key", str(self.key))


class Authority:
    """A CA with its files in a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._pair = Pair(directory / f"{name}.pem", directory / f"{name}.key")
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        subject = ("-days", "2", "-subj", f"/CN={name}")
        self._openssl("req", "-x509", *_KEY, *subject, *usage, self._pair)

    @property
    def cert(self) -> str:
        """The path of its certificate, for clients."""
        return str(self._pair.cert)

    def issue(self, name: str, *hosts: str) -> Pair:
        """Return a certificate of this CA for the hosts, such as IP:127.0.0.1 or DNS:localhost."""
        made = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        names = ("-addext", f"subjectAltName={','.join(hosts or ('IP:127.0.0.1',))}")
        signer = ("-CA", str(self._pair.cert), "-CAkey", str(self._pair.key))
        days = ("-days", "1", "-addext", "basicConstraints=critical,CA:FALSE")
        self._openssl("req", "-x509", *_KEY, *days, "-subj", f"/CN={name}", *names, *signer, made)
        return made

    def client(self) -> ssl.SSLContext:
        """Return what a client that trusts only this CA needs."""
        return ssl.create_default_context(cafile=self.cert)

    def _openssl(self, *arguments: str | Pair) -> None:
        *words, out = arguments
        assert isinstance(out, Pair)
        command = ["openssl", *map(str, words), "-keyout", str(out.key), "-out", str(out.cert)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        out.key.chmod(0o600)
