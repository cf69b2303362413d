"""Calls to the LLM server, each with its span: only where a collector is named."""

from service.proxy.upstream import Call, Reply, Upstream
from service.scoring.spans import Spans


class TracedUpstream:
    """An `Upstream` whose calls are traced."""

    def __init__(self, upstream: Upstream, spans: Spans) -> None:
        self._upstream = upstream
        self._spans = spans

    async def start(self) -> None:
        """Start what is traced."""
        await self._upstream.start()

    async def stop(self) -> None:
        """Stop what is traced; idempotent."""
        await self._upstream.stop()

    async def open(self, call: Call) -> Reply:
        """Return the answer; see the port."""
        if call.body is None:  # a list of models
            return await self._upstream.open(call)
        with self._spans.forwarding(call.path) as span:
            reply = await self._upstream.open(call)
            span.tell(reply.status)
            return reply
