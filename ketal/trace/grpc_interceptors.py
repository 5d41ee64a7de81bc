"""Interceptors for gRPC that send clocks in the metadata of calls.

A call is a message to the server, with the clock in the invocation metadata; its end is a
message back, with the clock in the trailing metadata. The messages of a stream within a call have
no clocks. Interceptors for `grpc.aio` are in `grpc_aio_interceptors`.

The one rule: a call without a clock is served like any other.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc

from ketal.trace.message_header import SHORT_MAX, Text, without_clocks
from ketal.trace.tracer import Tracer, checked_tracer

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


# --- clients ---


class _CallDetails(grpc.ClientCallDetails):  # type: ignore[misc]
    """A copy of the details of a call, with other metadata."""

    def __init__(self, details: Any, metadata: list[tuple[Text, Text]]) -> None:
        self.method = details.method
        self.timeout = details.timeout
        self.metadata = metadata
        self.credentials = details.credentials
        self.wait_for_ready = getattr(details, "wait_for_ready", None)
        self.compression = getattr(details, "compression", None)


def begin_call(tracer: Tracer, details: Any) -> list[tuple[Text, Text]]:
    """Record the beginning of a call; return its metadata with the clock."""
    headers = tracer.send_within(SHORT_MAX, "grpc.call", method=_method(details))
    return [*without_clocks(details.metadata or ()), *headers.items()]


def end_call(tracer: Tracer, details: Any, code: Any, trailing_metadata: Any) -> None:
    """Record the end of a call with its status, and merge the clock in its trailing metadata."""
    status = getattr(code, "name", str(code))
    # As pairs: `items()` of the metadata of `grpc.aio` yields lists of values.
    headers = list(trailing_metadata or ())
    tracer.receive(headers, "grpc.answered", method=_method(details), status=status)


def _method(details: Any) -> str:
    method = details.method
    return method.decode() if isinstance(method, bytes) else str(method)


class ClientInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Sends the clock with each call of a channel, and merges the clock of its end.

    The end of a call that is not waited for, or whose responses are a stream, is recorded as an
    event of the gRPC thread that calls back.

    Parameters
    ----------
    tracer : Tracer
        The client's tracer: `grpc.intercept_channel(channel, ClientInterceptor(tracer))`.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = checked_tracer(tracer)

    def _intercept(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        metadata = begin_call(self._tracer, details)
        call = continuation(_CallDetails(details, metadata), request)

        def on_done(done: Any) -> None:
            end_call(self._tracer, details, done.code(), done.trailing_metadata())

        if call.done():
            on_done(call)
        else:
            call.add_done_callback(on_done)
        return call

    intercept_unary_unary = intercept_unary_stream = _intercept
    intercept_stream_unary = intercept_stream_stream = _intercept


# --- servers ---


class ServedCall:
    """The context of a served call, which records its beginning and its end.

    Everything else is delegated to gRPC's own context; the service's trailing metadata is sent as
    well as the clock.
    """

    def __init__(self, tracer: Tracer, details: Any, context: Any) -> None:
        self._tracer, self._context = tracer, context
        self._method = _method(details)
        self._trailing: tuple[Any, ...] = ()
        self._has_ended = False
        tracer.receive(details.invocation_metadata, "grpc.served", method=self._method)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Set the metadata to send at the end of the call."""
        self._context.set_trailing_metadata(metadata)
        self._trailing = tuple(metadata)

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:
        """End the call with an error; under `grpc.aio` this returns an awaitable."""
        if trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        self._record_end()
        return self._context.abort(code, details)

    def abort_with_status(self, status: Any) -> Any:
        """End the call with a status."""
        return self.abort(status.code, status.details, status.trailing_metadata)

    def _record_end(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        headers = self._tracer.send_within(SHORT_MAX, "grpc.answer", method=self._method)
        # `grpc.aio` gives handlers that are not coroutines a context without this method.
        read_trailing = getattr(self._context, "trailing_metadata", lambda: self._trailing)
        trailing = without_clocks(read_trailing() or ())
        self._context.set_trailing_metadata((*trailing, *headers.items()))

    def __enter__(self) -> ServedCall:
        return self

    def __exit__(self, *raised: object) -> None:
        self._record_end()


grpc.ServicerContext.register(ServedCall)


def traced_handler(tracer: Tracer, details: Any, handler: Any) -> Any:
    """Wrap the handler of a call to record its beginning and its end; return None for None."""
    if handler is None:
        return None
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    behaviour = getattr(handler, kind)

    def served_call(context: Any) -> ServedCall:
        return ServedCall(tracer, details, context)

    async def streamed(request: Any, context: Any) -> AsyncIterator[Any]:
        with served_call(context) as call:
            async with contextlib.aclosing(behaviour(request, call)) as responses:
                async for response in responses:
                    yield response

    async def awaited(request: Any, context: Any) -> Any:
        with served_call(context) as call:
            return await behaviour(request, call)

    def yielded(request: Any, context: Any) -> Iterator[Any]:
        with served_call(context) as call:
            yield from behaviour(request, call)

    def returned(request: Any, context: Any) -> Any:
        with served_call(context) as call:
            return behaviour(request, call)

    # `grpc.aio` inspects a handler in the same way; for `grpc.server` it is one of the last two.
    wrapper: Any = returned
    if inspect.isasyncgenfunction(behaviour):
        wrapper = streamed
    elif inspect.iscoroutinefunction(behaviour):
        wrapper = awaited
    elif kind.endswith("_stream"):
        wrapper = yielded
    return getattr(grpc, f"{kind}_rpc_method_handler")(
        wrapper,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


class ServerInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Merges the clock of each call, and sends the clock of its end.

    Parameters
    ----------
    tracer : Tracer
        The server's tracer: `grpc.server(pool, interceptors=[ServerInterceptor(tracer)])`.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = checked_tracer(tracer)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return the traced handler of a call."""
        return traced_handler(self._tracer, details, continuation(details))
