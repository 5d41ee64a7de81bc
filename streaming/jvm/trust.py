"""The certificates that this machine trusts, in a form that Java reads.

A Java from pip carries the certificate authorities of its makers. A machine may trust others
besides, of a company's proxy for one; Python's ssl knows them, from OpenSSL's files or from
`SSL_CERT_FILE` and `SSL_CERT_DIR`. Java reads no PEM files, and its keytool takes certificates one
process each. The older of Java's own formats, JKS, is simple enough to be written here:

    magic, version 2, count; for each certificate: tag 2, alias, date, "X.509", length, DER;
    and SHA-1 over the password in UTF-16, the words "Mighty Aphrodite", and all of the above.

It holds public certificates only, so the password, the customary one, guards nothing.

The one rule: the same certificates make the same file, whose name is its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

from ketal.streaming.folders import replaced

PASSWORD = "changeit"

_MAGIC, _VERSION, _CERTIFICATE = 0xFEEDFEED, 2, 2
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def trust_store(cache: Path) -> Path | None:
    """Return a trust store with this machine's certificates.

    None where Python knows of none: then Java's own are all there is.
    """
    certificates = machine_certificates()
    if not certificates:
        return None
    content = java_key_store(certificates)
    path = cache / f"trust-{hashlib.sha256(content).hexdigest()[:16]}.jks"
    if not path.exists():
        replaced(path, content)
    return path


def machine_certificates() -> list[bytes]:
    """Return the certificates of the authorities that this machine trusts, in DER."""
    context = ssl.create_default_context()
    # OpenSSL reads a folder of certificates only when it looks for one of them.
    folder = ssl.get_default_verify_paths().capath
    if folder is not None:
        for name in os.listdir(folder):
            if _HASHED.fullmatch(name):
                # One that OpenSSL cannot read it would not trust either.
                with contextlib.suppress(ssl.SSLError, OSError):
                    context.load_verify_locations(cafile=os.path.join(folder, name))
    return sorted(set(context.get_ca_certs(binary_form=True)))


def java_key_store(certificates: Iterable[bytes]) -> bytes:
    """Return a key store of Java's format JKS that trusts these certificates (DER)."""
    trusted = list(certificates)
    parts = [struct.pack(">III", _MAGIC, _VERSION, len(trusted))]
    for number, certificate in enumerate(trusted):
        parts += [
            struct.pack(">I", _CERTIFICATE),
            _text(f"machine-{number}"),
            struct.pack(">q", 0),
            _text("X.509"),
            struct.pack(">I", len(certificate)),
            certificate,
        ]
    content = b"".join(parts)
    seal = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content
    return content + hashlib.sha1(seal, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    raw = text.encode("ascii")
    return struct.pack(">H", len(raw)) + raw
