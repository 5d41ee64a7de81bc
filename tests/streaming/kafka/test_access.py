"""A refusal of a secured broker is reported within seconds as a setting error with its cause."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import SaslAuthenticationFailedError

import ketal
from ketal.errors import SettingError
from ketal.streaming.job.file import Job
from ketal.streaming.kafka.connecting.tokens import Tokens
from tests.streaming.conftest import make_topic
from tests.streaming.jobs import FORKS, accept, job_of, produce, run, written
from tests.streaming.secured import CERTIFICATE, PASSWORD, PLAIN, Secured, allow

AT_ONCE_S, CALL_TIMEOUT_MS = 100.0, 600_000
"""A job that waits for a call waits six times as long as `at once` may take on a busy machine."""


def secured_job(secured: Secured, folder: Path, listener: str, topic: str, **more: Any) -> Job:
    at = secured.bootstrap_servers if listener == "PLAINTEXT" else secured.at(listener)
    folder.mkdir(exist_ok=True)
    job = job_of(secured, [topic], folder, until_end=True, **more)
    return Job(**{**vars(job), "bootstrap_servers": at})


SSL = {"security_protocol": "SSL", "ssl_cafile": str(CERTIFICATE)}


@pytest.mark.parametrize(
    ("listener", "properties", "message"),
    [
        ("SASL", {**PLAIN, "sasl_plain_password": "wrong"}, "Invalid username or password"),
        ("SASLTLS", {**PLAIN, **SSL, "security_protocol": "SASL_SSL", "sasl_plain_password": "x"},
         "Invalid username or password"),
        ("SASL", {**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"}, "UnsupportedSaslMechanismError"),
        ("SASL", {}, "requires SASL, but security_protocol is PLAINTEXT"),
        ("SASLTLS", SSL, "requires SASL, but security_protocol is SSL"),
        ("PLAINTEXT", PLAIN, "IllegalSaslStateError"),
        ("TLS", {**PLAIN, **SSL, "security_protocol": "SASL_SSL"}, "IllegalSaslStateError"),
        ("TLS", {}, "uses TLS, but security_protocol is PLAINTEXT"),
        ("SASLTLS", PLAIN, "uses TLS, but security_protocol is SASL_PLAINTEXT"),
        ("PLAINTEXT", SSL, "does not use TLS, but security_protocol is SSL"),
        ("SASL", {**PLAIN, **SSL, "security_protocol": "SASL_SSL"}, "does not use TLS, but"),
        ("TLS", {"security_protocol": "SSL"}, "CERTIFICATE_VERIFY_FAILED"),
    ],
)  # fmt: skip
def test_refused_connection_ends_the_job_at_once_with_its_cause(
    listener: str, properties: dict[str, str], message: str, secured: Secured, tmp_path: Path
) -> None:
    job = secured_job(secured, tmp_path, listener, make_topic(secured), properties=properties)
    job = replace(job, call_timeout_ms=CALL_TIMEOUT_MS, lost_after_ms=CALL_TIMEOUT_MS)
    began_s = time.monotonic()
    with pytest.raises(SettingError) as caught:
        run(job, ketal.compile(FORKS))
    assert time.monotonic() - began_s < AT_ONCE_S
    assert message in str(caught.value)
    assert job.bootstrap_servers in str(caught.value)
    assert "\n  hint: " in str(caught.value)
    assert PASSWORD not in str(caught.value)


@contextmanager
def token_endpoint(code: int = 200, **answer: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Serve one answer; yield the URL, and a list of the requests and their credentials."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = self.headers["Authorization"].removeprefix("Basic ")
            asked.append((form, base64.b64decode(given).decode()))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
        server.shutdown()


def unsecured_token(user: str) -> str:
    """Return an unsigned token, which Kafka accepts as long as it has no keys to verify with."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s, "exp": now_s + 600})
    encoded = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts]
    return b".".join([*encoded, b""]).decode()


def bearer(url: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_credentials_client_id": "an id",
        "sasl_oauthbearer_client_credentials_client_secret": "a:secret",
        "sasl_oauthbearer_scope": "kafka",
    }


def test_job_gets_its_tokens_from_the_endpoint(secured: Secured, tmp_path: Path) -> None:
    allow(secured, "job", [(kind, "*", "ALL") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")])
    topic = make_topic(secured)
    produce(secured, [(topic, 0, accept("a")), (topic, 0, accept("b"))])
    with token_endpoint(access_token=unsecured_token("job"), expires_in=600) as (url, asked):
        job = secured_job(secured, tmp_path, "SASL", topic, properties=bearer(url))
        run(job, ketal.compile(FORKS))
        assert set(asked) == {("grant_type=client_credentials&scope=kafka", "an+id:a%3Asecret")}
        tokens, before = Tokens(bearer(url)), len(asked)
        assert tokens.token() == tokens.token()
        assert len(asked) == before + 1
    assert len(written(tmp_path / "verdicts.jsonl")) == 1


@pytest.mark.parametrize(("lifetime_s", "requests"), [(2**31 - 1, 1), ("600", 1), (0, 2), (-1, 2)])
def test_token_is_requested_again_after_its_lifetime(lifetime_s: Any, requests: int) -> None:
    """Endpoints whose tokens do not expire give the largest integer, or -1."""
    with token_endpoint(access_token="x", expires_in=lifetime_s) as (url, asked):
        tokens = Tokens(bearer(url))
        assert (tokens.token(), tokens.token()) == ("x", "x")
        assert len(asked) == requests


@pytest.mark.parametrize(
    ("code", "answer", "message"),
    [
        (401, {}, "refused to issue a token: 401 Unauthorized"),
        (200, {"token": "x"}, "answered without a valid access_token"),
        (200, {"access_token": "x.y.z"}, "SaslAuthenticationFailedError"),
    ],
)
def test_refused_token_is_reported_without_the_secret(
    code: int, answer: dict[str, Any], message: str, secured: Secured, tmp_path: Path
) -> None:
    topic = make_topic(secured)
    with token_endpoint(code, **answer) as (url, _):
        job = secured_job(secured, tmp_path, "SASL", topic, properties=bearer(url))
        with pytest.raises(SettingError, match=message) as caught:
            run(job, ketal.compile(FORKS))
    assert "a:secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "did not answer with HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nwelcome", "did not answer with JSON"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": null}', "without a valid access_token"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "x", "expires_in": NaN}',
         "did not answer with JSON"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "x", "expires_in": "1 h"}',
         "without a valid access_token"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "x", "expires_in": "inf"}',
         "without a valid access_token"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "x", "expires_in": "nan"}',
         "without a valid access_token"),
    ],
)  # fmt: skip
def test_server_that_is_no_token_endpoint_is_a_setting_error(answer: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection = server.accept()[0]
            with connection, connection.makefile("rb") as request:
                # A connection closed on unread bytes is reset, and the answer may be lost with it.
                headers = iter(request.readline, b"\r\n")
                length = next(
                    int(line[15:]) for line in list(headers) if b"content-length:" in line.lower()
                )
                request.read(length)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        tokens = Tokens(bearer(f"http://127.0.0.1:{server.getsockname()[1]}/"))
        with pytest.raises(SaslAuthenticationFailedError, match=message):
            tokens.token()


@pytest.mark.parametrize(
    ("listener", "properties"),
    [("TLS", SSL), ("SASLTLS", {**PLAIN, **SSL, "security_protocol": "SASL_SSL"})],
)
def test_job_runs_with_correct_security_settings(
    listener: str, properties: dict[str, str], secured: Secured, tmp_path: Path
) -> None:
    """One of several servers may refuse the connection, and another may not be listening."""
    allow(secured, "job", [(kind, "*", "ALL") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")])
    topic = make_topic(secured)
    produce(secured, [(topic, 0, accept("a")), (topic, 0, accept("b"))])
    job = secured_job(secured, tmp_path, listener, topic, properties=properties)
    servers = f"127.0.0.1:1,{secured.bootstrap_servers},{job.bootstrap_servers}"
    run(Job(**{**vars(job), "bootstrap_servers": servers}), ketal.compile(FORKS))
    assert len(written(tmp_path / "verdicts.jsonl")) == 1
