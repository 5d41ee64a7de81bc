"""HTTP requests and responses with clocks, in the header `ketal-clock`.

A client sends the headers that `tracer.send` returns, and passes the headers of the response to
`tracer.receive`. For example, with the standard library:

    connection.request("GET", "/value", headers=tracer.send("request"))
    response = connection.getresponse()
    tracer.receive(response.headers, "response")

If the server, or a proxy before it, refuses long headers, the client should use
`tracer.send_within(message_header.SHORT_MAX, "request")`, as the responses here do.

The one rule: a request without a clock is served like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ketal.trace import message_header
from ketal.trace.tracer import Tracer, checked_tracer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiMiddleware:
    """An ASGI middleware that records each request as a receive, and each response as a send.

    Parameters
    ----------
    application : ASGI application
        The application that serves the requests.
    tracer : Tracer
        The server's tracer; with `activity="task"` each request is a node of its own.

    Examples
    --------
    >>> import asyncio
    >>> from ketal.trace import AsgiMiddleware, Tracer
    >>> async def application(scope, receive, send):
    ...     await send({"type": "http.response.start", "status": 200, "headers": []})
    >>> async def sent(message):
    ...     print(message["headers"])
    >>> served = AsgiMiddleware(application, Tracer("server", "server.jsonl"))
    >>> scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    >>> asyncio.run(served(scope, None, sent))
    [(b'ketal-clock', b'1;server;server=2')]
    """

    def __init__(self, application: Application, tracer: Tracer) -> None:
        self._application = application
        self._tracer = checked_tracer(tracer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        request = {"method": scope["method"], "path": scope["path"]}
        self._tracer.receive(scope["headers"], "http.request", **request)

        async def send_with_clock(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = self._tracer.send_within(
                    message_header.SHORT_MAX, "http.response", status=message["status"], **request
                )
                pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
                own = message_header.without_clocks(message.get("headers", ()))
                message = {**message, "headers": [*own, *pairs]}
            await send(message)

        await self._application(scope, receive, send_with_clock)
