"""Interceptors for `grpc.aio` that send clocks in the metadata, as in `grpc_interceptors`.

An interceptor runs in a task of gRPC's own. So the end of a call is recorded as an event of the
task that first waits for it: for the response, the last of the responses, the code, the details or
the trailing metadata. If no task waits for a call, its end is not recorded.

The one rule: a task that has waited for the end of a call has merged the server's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from grpc import aio

from ketal.trace.grpc_interceptors import ServedCall, begin_call, end_call, traced_handler
from ketal.trace.tracer import Tracer, checked_tracer


class _TracedCall:
    """A call whose end is recorded; all other attributes are those of the call."""

    def __init__(self, call: Any, tracer: Tracer, details: Any) -> None:
        self._call, self._tracer, self._details = call, tracer, details
        self._begin_task = asyncio.current_task()
        self._merge_end: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._await_end(self._call).__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for response in self._call:
                yield response
        finally:
            await self._record_end()

    async def code(self) -> Any:
        """Wait for the end of the call, and return its status code."""
        return await self._await_end(self._call.code())

    async def details(self) -> Any:
        """Wait for the end of the call, and return its details."""
        return await self._await_end(self._call.details())

    async def trailing_metadata(self) -> Any:
        """Wait for the end of the call, and return its trailing metadata."""
        return await self._await_end(self._call.trailing_metadata())

    async def _await_end(self, waiting: Awaitable[Any]) -> Any:
        try:
            return await waiting
        finally:
            await self._record_end()

    async def _record_end(self) -> None:
        """Record the end of the call, if it has ended; if recorded already, merge its clock."""
        if not self._call.done():
            return
        code, metadata = await self._call.code(), await self._call.trailing_metadata()
        if self._merge_end is not None:
            self._merge_end()  # in a copy of the context
            self._tracer.hand_over()
            return
        if self._begin_task is not None:
            self._tracer.joined(self._begin_task)
        end_call(self._tracer, self._details, code, metadata)
        self._merge_end = self._tracer.bind(self._tracer.hand_over)


for _kind in (aio.UnaryUnaryCall, aio.UnaryStreamCall, aio.StreamUnaryCall, aio.StreamStreamCall):
    _kind.register(_TracedCall)


class _Interceptor:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = checked_tracer(tracer)

    async def _intercept(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        metadata = aio.Metadata(*begin_call(self._tracer, details))
        traced = aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )
        call = await continuation(traced, request)
        return _TracedCall(call, self._tracer, details)

    intercept_unary_unary = intercept_unary_stream = _intercept
    intercept_stream_unary = intercept_stream_stream = _intercept


def client_interceptors(tracer: Tracer) -> list[Any]:
    """Return interceptors that send the clock with each call, and merge the clock of its end.

    There is one for each kind of call, since a channel uses an interceptor for one kind only.

    Parameters
    ----------
    tracer : Tracer
        The client's tracer:
        `grpc.aio.insecure_channel(target, interceptors=client_interceptors(tracer))`.
    """
    kinds = (
        aio.UnaryUnaryClientInterceptor, aio.UnaryStreamClientInterceptor,
        aio.StreamUnaryClientInterceptor, aio.StreamStreamClientInterceptor,
    )  # fmt: skip
    return [type("Interceptor", (_Interceptor, kind), {})(tracer) for kind in kinds]


class AioServerInterceptor(aio.ServerInterceptor):  # type: ignore[misc]
    """Merges the clock of each call, and sends the clock of its end.

    Parameters
    ----------
    tracer : Tracer
        The server's tracer: `grpc.aio.server(interceptors=[AioServerInterceptor(tracer)])`.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = checked_tracer(tracer)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        """Return the traced handler of a call."""
        return traced_handler(self._tracer, details, await continuation(details))


aio.ServicerContext.register(ServedCall)
