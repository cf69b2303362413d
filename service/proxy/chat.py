"""The drop-in: forward a call, score its answer, and withhold the answer if its decision is to abstain."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, replace

from starlette.responses import Response

from service.errors import EigencalError, LLMBadResponse, Unscorable
from service.http.door import StreamingBody
from service.llm import forward
from service.llm.client import LLM
from service.llm.forward import Reply, read_ahead
from service.llm.prompt import Priority
from service.llm.sse import events, parse_object, prepend, too_long
from service.llm.wire import MAX_MESSAGE_CHARS, NONSENSE
from service.proxy.answer import TOO_LONG, encoded, event_of, with_uncertainty, without_logprobs
from service.proxy.call import NO_OPTIONS, Call, Mode, prompt_of
from service.proxy.scores import AnswerScores
from service.proxy.stream import Chunk, as_it_is, forwarded, with_heartbeats
from service.scoring.score import AUTO, NumSamples, ScoreCommand, Target
from service.scoring.service import ScoringService

log = logging.getLogger(__name__)

# Proxies may answer 203 or 206 with a complete body. 204 and 205 have no body.
GOOD = frozenset(range(200, 300)) - {204, 205}
UNREADABLE = ("unreadable_request", "The call is not a JSON object that can be sent again.")


@dataclass(frozen=True, slots=True)
class Chat:
    """The drop-in: the LLM server, the scores of its answers, and their settings.

    `deadline_s`: how long an answer waits for its score, in seconds. `num_samples`: samples drawn for a score
    by default. `abstain`: withhold every answer whose decision is to abstain, regardless of the caller's
    options, and send `abstain_text` instead.
    """

    llm: LLM
    service: ScoringService
    scores: AnswerScores
    mode: Mode = "on"
    deadline_s: float = 10.0
    num_samples: NumSamples = AUTO
    abstain: bool = False
    abstain_text: str = ""

    async def complete(self, call: Call) -> Response:
        """Return the server's answer to a call, with its score unless the mode is `off`.

        If the server refuses log-probabilities that the score needs, the call is sent again as the caller
        wrote it, so that callers never lose an answer.
        """
        contents, kind = [call.body], ""
        if call.mode != "off":
            try:
                needs_logprobs = await self._plan(call)
            except Exception as reason:  # a failed score never fails the answer
                call.failure, needs_logprobs = reason, False
            if needs_logprobs and call.payload is not None:
                contents.insert(0, encoded(call.answer.asking_logprobs(call.payload)))
                # Some servers refuse log-probabilities only for streams with tools.
                has_tools, streams = bool(call.payload.get("tools")), bool(call.payload.get("stream"))
                model = call.payload.get("model")
                kind = f"{call.answer.path} {model}, stream {streams}, tools {has_tools}"
        async with AsyncExitStack() as ending:
            permit = await ending.enter_async_context(self.llm.permit())
            ending.push_async_callback(self.scores.leave, call)
            if not call.streams or call.abstains:
                self.scores.draw(call)
            sending = self.llm.forward(call.path, *contents, headers=call.headers, kind=kind)
            reply = await ending.enter_async_context(sending)
            hides = len(contents) > 1 and reply.attempt == 0
            response = await self._answer(call, reply, permit, ending, hides=hides)
        if call.mode != "off" and response.status_code in GOOD:
            response.headers["X-Score-ID"] = call.id
        return response

    async def _plan(self, call: Call) -> bool:
        """Set the command for the score. Return True if it needs log-probabilities that the call lacks.

        Raises Unscorable.
        """
        if call.payload is None:
            raise Unscorable(*UNREADABLE)
        if call.mode == "async":
            self.scores.require_room()
        body, options = call.answer.chat_of(call.payload), call.options
        serving, choice = self.service.serving, self.service.scorer.choice
        target = serving.target(options.target_error, options.confidence)
        claims = options.mark or options.claims
        if self.abstain:  # callers can only make the target stricter
            own = serving.target()
            target = Target(min(target.error, own.error), max(target.confidence, own.confidence))
            options, claims = NO_OPTIONS, False  # claims quote the answer, which may be withheld
        wanted = self.num_samples if options.num_samples is None else options.num_samples
        model, sampling = body.get("model"), serving.messages_sampling
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        limit = limit if type(limit) is int else sampling.max_tokens
        command = ScoreCommand(
            num_samples=serving.number_of(wanted),
            sampling=sampling,
            prompt=prompt_of(body),
            model=model if isinstance(model, str) and model else None,
            # If no answer is sent without its score, both are equally urgent.
            priority=Priority.LIVE if self.abstain else Priority.BESIDE,
            # The context may have no room for more than the call's limit.
            fallback_max_tokens=limit if 0 < limit < sampling.max_tokens else None,
            calibration=options.calibration,
            target=target,
            claims=claims,
        )
        number: int | None = command.num_samples
        if wanted == AUTO:
            with suppress(EigencalError):  # the score will report it
                number = choice.recommended(command, await choice.named(options.calibration))
        sampling = replace(sampling, max_tokens=max(limit, sampling.max_tokens))
        call.command = replace(command, num_samples=number or command.num_samples, sampling=sampling)
        call.is_judged_alone = number == 0
        return call.is_judged_alone and body.get("logprobs") in (None, False)

    async def _answer(
        self, call: Call, reply: Reply, permit: ExitStack, ending: AsyncExitStack, *, hides: bool
    ) -> Response:
        """Return the response for a reply. A stream takes over what `ending` holds."""
        if reply.status == 404 and call.path.startswith("/responses"):
            path = call.path.partition("?")[0]
            log.warning("the LLM server answered POST /v1%s with 404: it may not have this route", path)
        is_scored = call.mode != "off" and reply.status in GOOD  # a failed call has no score
        if reply.is_stream and not call.abstains:
            stream = self._stream(call, reply, permit, hides=hides) if is_scored else as_it_is(reply)
            return StreamingBody(reply.status, reply.headers, stream, ending.pop_all())
        if reply.is_stream and is_scored:
            raise LLMBadResponse("The LLM server sent a stream in place of a whole answer.")
        rest = reply.pieces()
        content, is_whole = await read_ahead(rest)
        if not is_whole:
            if self.abstain:
                raise too_long()
            if is_scored:
                self.scores.report(call, Unscorable(*TOO_LONG))
            return StreamingBody(reply.status, reply.headers, prepend(content, rest), ending.pop_all())
        permit.close()  # the samples may need it
        if is_scored:
            return await self._judged(call, reply, content, hides=hides)
        headers = dict(reply.headers)
        if self.abstain and content:
            content = _error_alone(content, reply.status)
            headers["content-type"] = "application/json"
            headers.pop("content-encoding", None)  # the new body is not compressed
        return Response(content, reply.status, headers)

    async def _stream(
        self, call: Call, reply: Reply, permit: ExitStack, *, hides: bool
    ) -> AsyncGenerator[bytes, None]:
        """Yield a stream with its score. The chunk that finishes the answer waits for the score."""
        received, tail = events(reply.pieces(), forward.MAX_WHOLE_BYTES), list[Chunk | bytes]()
        async for piece in forwarded(received, call.answer, tail, hides=hides):
            yield piece
            # Samples start now: earlier they would delay the caller's first token. The prompt is cached too.
            if call.answer.has_begun:
                self.scores.draw(call)
        permit.close()  # the samples may need it
        waits = call.mode == "on" and any(isinstance(kept, dict) for kept in tail)
        scoring = self.scores.judge(call)
        async for comment in with_heartbeats(scoring, self.deadline_s if waits else 0.0):
            yield comment
        document = self.scores.document(call)
        for kept in tail:
            yield kept if isinstance(kept, bytes) else event_of(with_uncertainty(kept, document))
        with suppress(EigencalError):  # the answer is complete
            async for event in received:
                chunk = event.chunk() if hides else None
                yield event.raw if chunk is None else event_of(without_logprobs(chunk))

    async def _judged(self, call: Call, reply: Reply, content: bytes, *, hides: bool) -> Response:
        """Return a whole answer with its score, or the answer that replaces it."""
        answer, payload = call.answer, parse_object(content) or {}
        answer.take(payload)
        answer.is_over = True
        wait_s = self.deadline_s if call.mode == "on" else 0.0
        await asyncio.wait({self.scores.judge(call)}, timeout=wait_s)
        document = self.scores.document(call)
        headers = {**reply.headers, **(call.score.headers() if call.score else {})}
        if hides:
            payload = without_logprobs(payload)
        try:
            if call.abstains and self._withholds(call):
                if not self.abstain:  # the caller asked to abstain, so it may see the text
                    document = {**document, "withheld": answer.text}
                payload = answer.withheld(payload, self.abstain_text)
                headers["content-type"] = "application/json"
                headers.pop("content-encoding", None)  # the new body is not compressed
            elif self.abstain:
                payload = answer.let_through(payload, call.judged)
            if payload and call.streams:
                content = answer.streamed(payload, document)
                headers["content-type"] = "text/event-stream"
            elif payload:
                content = encoded({**payload, "uncertainty": document})
        except NONSENSE:
            raise LLMBadResponse("The LLM server's answer is not a completion.") from None
        return Response(content, reply.status, headers)

    def _withholds(self, call: Call) -> bool:
        """Return True if the answer is withheld: by its decision, or because there is none.

        If the score failed, only the operator's policy withholds the answer.
        """
        if call.document.get("warning", {}).get("code") == "no_text":
            return False
        if call.score is None:
            return self.abstain
        return call.score.decision is None or call.score.decision.action == "abstain"


def _error_alone(content: bytes, status: int) -> bytes:
    """Return an error of the server in OpenAI's form without other members: they may quote the answer."""
    error = (parse_object(content) or {}).get("error")
    message = f"The LLM server answered with status {status}."
    told: dict[str, str | None] = {"message": message, "type": None, "param": None, "code": None}
    if isinstance(error, dict):
        given = {name: error[name] for name in told if isinstance(error.get(name), str | int)}
        told |= {name: str(value)[:MAX_MESSAGE_CHARS] for name, value in given.items()}
    return encoded({"error": told})
