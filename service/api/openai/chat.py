"""What the drop-in's routes work with, and what they make of a call."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import Depends, Request

from service.api.http.deps import Metrics
from service.api.http.error_log import ErrorLog
from service.api.http.problems import error_body, internal_body
from service.api.openai.answers import has_no_answer, is_abstained, is_judged
from service.api.openai.own_field import FIELD, Incoming, Mode, OwnField
from service.api.openai.view import document_of
from service.domain.chat.plan import Options, Plan, plan_for
from service.domain.chat.prompt import Api, Unscorable
from service.domain.chat.running import BUSY, ChatScorer, RunningScore, Told
from service.domain.chat.uncertainty import Uncertainty
from service.domain.chat.upstream import Upstream
from service.domain.errors import EigencalError, EmbedderUnavailable, InvalidRequest
from service.domain.scoring.judgement import Target
from service.domain.scoring.model import ScoreCommand
from service.domain.serving import Effort, Serving

Keep = Callable[[str, str, str], None]
UNREADABLE = Unscorable("unreadable_request", "The call is no JSON object that could be sent once more.")
MANY_CHOICES = Unscorable("many_choices", "Of several choices only the first is judged: none is let through.")


@dataclass(frozen=True, slots=True)
class Chat:
    """The LLM server as its callers see it, the scores beside its answers, and the settings of both.

    `deadline_s`: how long a complete answer waits for its score. `effort`: None for the normal number of
    answers. `abstain`: whether answers are withheld by their decision whatever callers ask, `abstain_text` in
    their stead; `abstain_fail_open`: but those that cannot be judged go out; `abstain_streams`: what becomes
    of streams.
    """

    upstream: Upstream
    scorer: ChatScorer
    serving: Serving
    mode: Mode = "on"
    deadline_s: float = 10.0
    effort: Effort | None = None
    abstain: bool = False
    abstain_text: str = ""
    abstain_fail_open: bool = False
    abstain_streams: Literal["hold", "refuse"] = "hold"

    def begin(self, incoming: Incoming, api: Api, owner: str) -> RunningScore:
        """Return the score of the answer to come. Raises InvalidRequest for what may not be asked."""
        options = self._options_by_policy(incoming) if self.abstain else self._options(incoming)
        self._check_abstain(incoming)
        if incoming.mode == "async" and not self.scorer.has_room:
            return self.scorer.begin(BUSY, owner)
        return self.scorer.begin(self._plan(incoming, api, options), owner)

    def withholds(self, incoming: Incoming, found: Uncertainty, *, several: bool) -> bool:
        """Tell whether the answer is not to go out: by its decision, or for want of one by the settings."""
        if not self.abstain:
            return bool(incoming.own.abstain) and is_abstained(found)
        if is_judged(found) and is_abstained(found):
            return True
        judged = (is_judged(found) or has_no_answer(found)) and not several
        return not (judged or self.abstain_fail_open)

    def _plan(self, incoming: Incoming, api: Api, options: Options) -> Plan | Unscorable:
        if incoming.said is None:
            return UNREADABLE
        if self.abstain and not self.abstain_fail_open and incoming.said.get("n") not in (None, 1):
            return MANY_CHOICES
        try:
            return plan_for(incoming.said, api, self.serving, options, self._takes_evidence)
        except Unscorable as reason:
            return reason

    def _takes_evidence(self, command: ScoreCommand) -> bool:
        try:
            return self.scorer.scorer.takes_evidence(command)
        except EmbedderUnavailable:  # what comes of it is told in its place
            return False

    def _options(self, incoming: Incoming) -> Options:
        own = incoming.own
        target = self.serving.target(own.target_error, own.confidence)
        # Who asks for abstaining wants a decision, also where no calibration can make one.
        target = replace(target, by_default=target.by_default and not own.abstain)
        return Options(self._number(own), target, own.calibration)

    def _options_by_policy(self, incoming: Incoming) -> Options:
        """Return the options of the settings, and what of the caller's is stricter."""
        own, target = incoming.own, self.serving.target()
        error, confidence = own.target_error or target.error, own.confidence or target.confidence
        strict = Target(min(error, target.error), max(confidence, target.confidence))
        return Options(self._number(OwnField()), strict)

    def _number(self, own: OwnField) -> int:
        effort = own.effort or self.effort
        if own.num_samples is not None or effort is None:
            return own.num_samples or self.serving.num_samples
        return self.serving.efforts.num_samples(effort)

    def _check_abstain(self, incoming: Incoming) -> None:
        """Refuse to abstain where it could not be done: who asks for it relies on it."""
        if self.abstain or not incoming.own.abstain:
            return
        if incoming.streams or incoming.mode != "on":
            raise _refused("goes with an answer that waits for its score: `X-Eigencal: on`, and no stream")


def _refused(said: str) -> InvalidRequest:
    return InvalidRequest(f"{FIELD}.abstain: {said}", [{"loc": ["body", FIELD, "abstain"], "msg": said}])


async def chat_of(request: Request) -> Chat:
    """Return the drop-in of the application that got the request."""
    found: Chat = request.app.state.chat
    return found


ChatDep = Annotated[Chat, Depends(chat_of)]


def telling(metrics: Metrics, errors: ErrorLog, keep: Keep) -> Told:
    """Return what counts, logs and keeps the scores beside answers."""
    pending: set[str] = set()

    def tell(found: Uncertainty) -> None:
        if found.status == "pending":
            pending.add(found.id)
        elif found.id in pending:
            pending.remove(found.id)
            metrics.was_pending(found.score)
        if found.score is not None:
            metrics.scored(found.score)
        if found.failure is not None:
            metrics.failed(found.warning.code if found.warning else "internal")
            _log(errors, found)
        keep(found.id, found.owner, json.dumps(document_of(found)))

    return tell


def _log(errors: ErrorLog, found: Uncertainty) -> None:
    where = f"the score {found.id} beside an answer"
    if isinstance(found.failure, EigencalError):
        errors.note(error_body(found.failure, None), where)
    else:
        errors.note(internal_body(None), where, found.failure)
