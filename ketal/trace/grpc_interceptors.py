"""Calls of gRPC, each with its clock in the metadata.

A call is a message to the server, with the clock in the metadata of the invocation, and its end a
message back, with the clock in the trailing metadata; the messages of a stream within a call carry
none.

The one rule: a call without a clock is served as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from ketal.trace.message_header import SHORT_MAX

if TYPE_CHECKING:
    from ketal.trace.tracer import Tracer

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class ClientInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Sends the clock with each call of a channel, and takes over that of its end.

    Of a call whose end is not waited for, and of one whose responses are a stream, the end is an
    event of the thread in which gRPC learns of it.

    Parameters
    ----------
    tracer : Tracer
        Who calls: `grpc.intercept_channel(channel, ClientInterceptor(tracer))`.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def _intercept(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        method = details.method
        headers = self._tracer.send_within(SHORT_MAX, "grpc.call", method=method)
        metadata = [*(details.metadata or ()), *headers.items()]
        call = continuation(_Details(details, metadata), request)

        def ended(done: Any) -> None:
            status = done.code()
            name = getattr(status, "name", str(status))
            self._tracer.receive(
                done.trailing_metadata() or (), "grpc.answered", method=method, status=name
            )

        if call.done():
            ended(call)
        else:
            call.add_done_callback(ended)
        return call

    intercept_unary_unary = intercept_unary_stream = _intercept
    intercept_stream_unary = intercept_stream_stream = _intercept


class _Details(grpc.ClientCallDetails):  # type: ignore[misc]
    """The details of a call, with other metadata."""

    def __init__(self, details: Any, metadata: list[tuple[str, str | bytes]]) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = metadata
        self.credentials = details.credentials
        self.wait_for_ready = getattr(details, "wait_for_ready", None)
        self.compression = getattr(details, "compression", None)


class ServerInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Takes over the clock of each call, and sends that of its end.

    The service's own trailing metadata is kept: it is set before the end of the call.

    Parameters
    ----------
    tracer : Tracer
        Who serves: `grpc.server(pool, interceptors=[ServerInterceptor(tracer)])`.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return the handler of a call, traced."""
        handler = continuation(details)
        if handler is None:
            return None
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        behaviour = getattr(handler, kind)
        streams = kind.endswith("_stream")
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._streaming(behaviour, details) if streams else self._answering(behaviour, details),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _answering(self, behaviour: Callable[..., Any], details: Any) -> Callable[..., Any]:
        def served(request: Any, context: Any) -> Any:
            self._begin(details)
            try:
                return behaviour(request, context)
            finally:
                self._end(details, context)

        return served

    def _streaming(self, behaviour: Callable[..., Any], details: Any) -> Callable[..., Any]:
        def served(request: Any, context: Any) -> Iterator[Any]:
            self._begin(details)
            try:
                yield from behaviour(request, context)
            finally:
                self._end(details, context)

        return served

    def _begin(self, details: Any) -> None:
        self._tracer.receive(details.invocation_metadata, "grpc.served", method=details.method)

    def _end(self, details: Any, context: Any) -> None:
        headers = self._tracer.send_within(SHORT_MAX, "grpc.answer", method=details.method)
        context.set_trailing_metadata((*(context.trailing_metadata() or ()), *headers.items()))
