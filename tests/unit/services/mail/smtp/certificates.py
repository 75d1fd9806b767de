"""Certificates of an authority that only the tests trust."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """An authority, and files with what it signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca_file))

    def make(self, *names: str, file: str = "host.pem") -> Path:
        """A new certificate and its key in one file; the same name is replaced."""
        made = self._authority.issue_cert(*names)
        path = self._folder / file
        path.write_bytes(made.private_key_and_cert_chain_pem.bytes())
        path.chmod(0o600)
        return path

    def client(self, **more: object) -> ssl.SSLContext:
        """What trusts it."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        for name, value in more.items():
            setattr(context, name, value)
        return context
