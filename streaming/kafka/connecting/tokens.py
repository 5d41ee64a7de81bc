"""Tokens for SASL OAUTHBEARER, by the client credentials grant (RFC 6749, section 4.4; KIP-768).

The properties have the names of Java's clients, with `_` for `.`: an endpoint, an id, a secret, a
scope. A token is requested when a client connects, cached until shortly before it expires, and then
requested again.

The one rule: neither the secret nor a token is in any message.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Mapping
from http.client import HTTPException, IncompleteRead
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request, urlopen

import msgspec
from kafka import errors as faults
from kafka.net.sasl.oauth import AbstractTokenProvider

from ketal.streaming.kafka.connecting.properties import (
    TOKEN_ENDPOINT,
    TOKEN_ID,
    TOKEN_SCOPE,
    TOKEN_SECRET,
)

ANSWER_S = 10.0
LIFETIME_S = 60.0
"""The lifetime of a token for which the endpoint gives none."""
EARLY = 0.8
"""The share of its lifetime after which a token is requested again, as in Java's clients."""


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: Annotated[float, msgspec.Meta(le=sys.float_info.max)] = LIFETIME_S  # not inf or nan


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Requests tokens from the endpoint that a job's properties name; these are checked before."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__()
        self._url = properties[TOKEN_ENDPOINT]
        names = (quote_plus(properties[name]) for name in (TOKEN_ID, TOKEN_SECRET))
        credentials = base64.b64encode(":".join(names).encode()).decode()
        form = {"grant_type": "client_credentials"}
        if TOKEN_SCOPE in properties:
            form["scope"] = properties[TOKEN_SCOPE]
        self._request = Request(
            self._url,
            data=urlencode(form).encode(),
            headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        self._token = ""
        self._expires_s = 0.0

    def token(self) -> str:
        """Return a valid token, cached or new.

        Raises
        ------
        SaslAuthenticationFailedError
            If the endpoint refuses the request, or its answer has no valid token.
        KafkaConnectionError
            If the endpoint cannot be reached, or fails.
        """
        if time.monotonic() >= self._expires_s:
            began_s = time.monotonic()
            answer = self._request_token()
            self._token = answer.access_token
            self._expires_s = began_s + EARLY * answer.expires_in
        return self._token

    def _request_token(self) -> _Answer:
        try:
            with urlopen(self._request, timeout=ANSWER_S) as response:
                # Some endpoints give the lifetime as text.
                return msgspec.json.decode(response.read(), type=_Answer, strict=False)
        except HTTPError as refused:
            reason = f"{self._url} refused to issue a token: {refused.code} {refused.reason}"
            if refused.code >= 500:
                raise faults.KafkaConnectionError(reason) from None
            raise faults.SaslAuthenticationFailedError(reason) from None
        except msgspec.ValidationError:
            raise faults.SaslAuthenticationFailedError(
                f"{self._url} answered without a valid access_token"
            ) from None
        except (ValueError, RecursionError):
            raise faults.SaslAuthenticationFailedError(
                f"{self._url} did not answer with JSON"
            ) from None
        except (OSError, IncompleteRead) as fault:
            raise faults.KafkaConnectionError(f"{self._url}: {fault}") from None
        except HTTPException as fault:
            reason = f"{self._url} did not answer with HTTP: {type(fault).__name__}"
            raise faults.SaslAuthenticationFailedError(reason) from None
