"""Serves the provider to the engine and carries its progress and its errors there."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2_grpc

from stacks.provider.kind import Say
from stacks.provider.provider import Muster

VERSION = "0.1.0"


class Servicer(ProviderServicer):
    """Pulumi's servicer, but for errors: people read what is wrong, not where in this program it was noticed."""


def _told(name: str) -> Callable[..., Any]:
    method = getattr(ProviderServicer, name)

    async def call(self: Servicer, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except Exception as failed:
            # The SDK wraps an exception in one whose message has a traceback: the first is the context of the second.
            cause = failed.__context__ or failed
            text = str(cause) or type(cause).__name__
        return await context.abort(grpc.StatusCode.UNKNOWN, text)

    return call


for _name in ("Check", "Diff", "Create", "Update", "Delete", "Read"):
    setattr(Servicer, _name, _told(_name))


class Log:
    """The engine's log. Lines for a resource show beside it in `pulumi up`."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_GRPC_CHANNEL_OPTIONS)
        self._engine = engine_pb2_grpc.EngineStub(self._channel)
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def about(self, urn: str) -> Say:
        """Where the lines of one resource go. May be called from any thread."""

        def say(text: str, keep: bool) -> None:
            self._loop.call_soon_threadsafe(self._begin, urn, text, keep)

        return say

    def _begin(self, urn: str, text: str, keep: bool) -> None:
        task = asyncio.ensure_future(self._send(urn, text, keep))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, urn: str, text: str, keep: bool) -> None:
        line = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=text, urn=urn, ephemeral=not keep)
        with contextlib.suppress(grpc.aio.AioRpcError):  # the engine has gone: nobody reads it
            await self._engine.Log(line, timeout=5)


async def serve(engine_address: str, muster: Callable[[Callable[[str], Say]], Muster]) -> None:
    """Serves until the engine ends this process or is gone, after printing the port as the engine expects it."""
    log = Log(engine_address)
    server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
    provider = muster(log.about)
    servicer = Servicer([], VERSION, provider, engine_address=engine_address)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    # An engine that is killed tells nobody: this process becomes another's child then.
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(1)
    await provider.cancel()
    await server.stop(grace=5)
