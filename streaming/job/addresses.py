"""Addresses in the settings of a job: Kafka's servers, and the host that serves metrics.

The one rule: an address that no client could look up is refused as a setting.
"""

from __future__ import annotations

import re

from ketal.errors import SettingError

PORT = 9092
"""Kafka's port where the address of a server has none."""
PORT_MAX = 65_535
_SERVER = re.compile(r"(?:[A-Z\d_]+://)?(\[[^\]\s]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
"""A host and its port, after the name of a listener, which Kafka's own clients ignore."""
_IPV6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
"""An IPv6 address without brackets, and so without a port."""


def read_servers(place: str, text: str) -> str:
    """Return Kafka's addresses, each with its port, since Java's clients require one."""
    servers = []
    for server in map(str.strip, text.split(",")):
        address = f"[{server}]" if _IPV6.fullmatch(server) else server
        parts = _SERVER.fullmatch(address)
        port = int(parts[2] or PORT) if parts and is_host(parts[1]) else 0
        if not 0 < port <= PORT_MAX:
            raise SettingError(
                f"{place} must be HOST:PORT,..., with ports from 1 to {PORT_MAX}, not {text!r}"
            )
        servers.append(address if parts and parts[2] else f"{address}:{port}")
    return ",".join(servers)


def read_host(place: str, text: str) -> str:
    """Return the name or the address of a host."""
    if not is_host(text):
        raise SettingError(f"{place} must be the name or the address of a host, not {text!r}")
    return text


def is_host(text: str) -> bool:
    """Return whether a text can be looked up as a host: no label of it is empty or too long."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True
