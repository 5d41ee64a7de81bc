"""A real broker with TLS, passwords, tokens and an authorizer, each on a listener of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from ketal.streaming.broker import server
from ketal.streaming.broker.server import Broker
from ketal.streaming.broker.settings import HOST, free_port, properties_text
from tests.streaming.conftest import FRUGAL, QUICK_JVM

CERTIFICATE = Path(__file__).with_name("localhost.pem")
PASSWORD = "the-right-one"
PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "job",
    "sasl_plain_password": PASSWORD,
}
_MODULE = "org.apache.kafka.common.security"
_LISTENERS = {"TLS": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}
"""Name of a listener → its protocol; PLAINTEXT exists as well, and its clients have all rights."""


def _with_listeners(text: str, ports: dict[str, int]) -> str:
    """Return broker properties with the listeners of `ports` added."""
    lines = dict(line.split("=", 1) for line in text.splitlines())
    for name, port in ports.items():
        at = f",{name}://{HOST}:{port}"
        lines["listeners"] += at
        lines["advertised.listeners"] += at
        lines["listener.security.protocol.map"] += f",{name}:{_LISTENERS[name]}"
    for name in ("sasl", "sasltls"):
        lines |= {
            f"listener.name.{name}.plain.sasl.jaas.config": (
                f"{_MODULE}.plain.PlainLoginModule required "
                f'user_job="{PASSWORD}" user_stranger="{PASSWORD}";'
            ),
            f"listener.name.{name}.oauthbearer.sasl.jaas.config": (
                f"{_MODULE}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            f"listener.name.{name}.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        }
    lines |= {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(CERTIFICATE),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


class Secured(Broker):
    """A broker with the ports of its other listeners."""

    ports: dict[str, int]

    def at(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    broker = Secured(folder, properties=FRUGAL, jvm=QUICK_JVM)
    broker.ports = {name: free_port() for name in _LISTENERS}
    with pytest.MonkeyPatch.context() as patch:
        # `Broker` lets no caller set its listeners; these exist for tests alone.
        patch.setattr(
            server,
            "properties_text",
            lambda **given: _with_listeners(properties_text(**given), broker.ports),
        )
        broker.start()
    try:
        yield broker
    finally:
        if broker.running() is not None:
            broker.stop()


Right = tuple[str, str, str]
"""(type of resource, name, operation); a name that ends in `*` is a prefix."""


def allow(broker: Broker, user: str, rights: Iterable[Right]) -> None:
    """Give a user just these rights."""
    principal = f"User:{user}"
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    all_of_user = ACLFilter(
        principal, None, ACLOperation.ANY, ACLPermissionType.ANY, anything
    )  # fmt: skip
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_acls([all_of_user])
        acls = [_acl(principal, *right) for right in rights]
        if acls:
            result = admin.create_acls(acls)
            assert not result["failed"], result


def _acl(principal: str, kind: str, name: str, operation: str) -> ACL:
    prefixed = len(name) > 1 and name.endswith("*")
    match_type = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    pattern = ResourcePattern(ResourceType[kind], name[:-1] if prefixed else name, match_type)
    return ACL(principal, "*", ACLOperation[operation], ACLPermissionType.ALLOW, pattern)
