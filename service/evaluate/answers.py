"""Answers for rows that came without: drawn by the language model, kept as they come, never drawn twice."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from service.domain.devdata.reader import Recorded
from service.domain.errors import Conflict, EigencalError
from service.domain.jobs.drawing import row_request
from service.domain.jobs.model import DevRow
from service.domain.jobs.store import StoredRow
from service.domain.jobs.waiting import Patience
from service.domain.models import Draw, GenerationRequest, LLMIdentity
from service.domain.outcomes import supplied_draws
from service.domain.ports import LanguageModel
from service.domain.serving import Serving

# An evaluation runs at a terminal: someone waits, and it goes on where it stopped.
PATIENCE = Patience(give_up_s=120.0)


class KeptAnswers(Protocol):
    """Where drawn answers are kept, by `answer_key`."""

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept so far."""

    def add(self, key: str, draws: Sequence[Draw], drawn_by: Mapping[str, Any], answered_as: str) -> None:
        """Keep more, by the model asked for, which gave itself a name; durable once it returns.

        Raises Conflict when others were drawn by another model.
        """


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """How answers are drawn: at most `slots` requests at once. model: asked for; "": not known before."""

    llm: LanguageModel
    serving: Serving
    kept: KeptAnswers
    slots: int = 1
    model: str = ""

    def at(self, sampling_temperature: float) -> "AnswerSource":
        """Return the same source at another sampling temperature."""
        serving = replace(
            self.serving,
            sampling=replace(self.serving.sampling, temperature=sampling_temperature),
            messages_sampling=replace(self.serving.messages_sampling, temperature=sampling_temperature),
        )
        return replace(self, serving=serving)


def supplied(rows: Sequence[DevRow], recorded: Mapping[int, Recorded] | None = None) -> list[StoredRow]:
    """Return rows that came with their answers; recorded: by line, what else the file says of them."""
    told = recorded or {}
    return [
        StoredRow(row, _supplied(row, told.get(row.line, Recorded()).tokens), complete=True) for row in rows
    ]


def _supplied(row: DevRow, tokens: Sequence[float]) -> tuple[Draw, ...]:
    draws = supplied_draws(row.samples or (), row.logprobs)
    if len(tokens) != len(draws):
        return draws
    return tuple(replace(draw, num_tokens=int(one)) for draw, one in zip(draws, tokens, strict=True))


async def draw_all(
    split: str, rows: Sequence[DevRow], num_samples: int, source: AnswerSource, advance: Callable[[], None]
) -> list[StoredRow]:
    """Return every row with `num_samples` answers. `advance` is called once per row.

    Raises Conflict, and what the language model raises once patience ends.
    """
    free = asyncio.Semaphore(source.slots)
    drawn: list[StoredRow | None] = [None] * len(rows)

    async def work(place: int, row: DevRow) -> None:
        async with free:
            draws = await _draw(split, row, num_samples, source)
        drawn[place] = StoredRow(row, draws, complete=True)
        advance()

    try:
        async with asyncio.TaskGroup() as group:
            for place, row in enumerate(rows):
                group.create_task(work(place, row))
    except* EigencalError as errors:
        # A task group wraps even a single error; callers know ours, not groups.
        raise errors.exceptions[0] from None
    return [one for one in drawn if one is not None]


async def _draw(split: str, row: DevRow, num_samples: int, source: AnswerSource) -> tuple[Draw, ...]:
    request = row_request(source.serving, row, num_samples)
    key = answer_key(split, row, request, source.llm.identity(request))
    draws = tuple(source.kept.get(key))[:num_samples]
    while len(draws) < num_samples:
        asked = replace(request, num_samples=num_samples - len(draws))
        got = await PATIENCE.keep_trying(partial(source.llm.generate, asked), _silent)
        drawn_by = {**source.llm.identity(request).parts(), "model": source.model or got.model}
        source.kept.add(key, got.draws, drawn_by, got.model)
        draws = (*draws, *got.draws)[:num_samples]
    return draws


def answer_key(split: str, row: DevRow, request: GenerationRequest, llm: LLMIdentity) -> str:
    """Return what makes two draws the same: file, line, prompt, its shape, sampling; not the number asked.

    The model is left out: a server tells its name with the first answer only.
    """
    messages = [[m.role, m.content] for m in request.messages or ()]
    sampling = {**asdict(request.sampling), "seed": None}
    shape = [llm.api, llm.prompt_shape, llm.answer_regex]
    parts = [split, row.line, request.prompt, messages, sampling, shape]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


async def _silent(_: str) -> None:
    """Say nothing: the bar stands still meanwhile."""


def setups(llm: LanguageModel, serving: Serving, rows: Sequence[DevRow]) -> dict[str, dict[str, Any]]:
    """Return what decides the answers to these rows beside the model, by kind of row: prompt, messages.

    The seed is no part of it: an evaluation sends none of its own.
    """
    kinds = {"prompt" if row.messages is None else "messages": row for row in rows}
    return {kind: _setup(llm, row_request(serving, row, 1)) for kind, row in kinds.items()}


def _setup(llm: LanguageModel, request: GenerationRequest) -> dict[str, Any]:
    identity = llm.identity(request).parts()
    sampling = {f"sampling.{k}": v for k, v in asdict(request.sampling).items() if k != "seed"}
    sampling["sampling.stop"] = list(request.sampling.stop)
    return {**{k: v for k, v in identity.items() if k != "model"}, **sampling}


def model_of(llm: LanguageModel, serving: Serving, rows: Sequence[DevRow]) -> str:
    """Return the model asked for, as long as nothing has answered; "" while the server has not told it."""
    return llm.identity(row_request(serving, rows[0], 1)).model


def check_same(known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise Conflict, which says what differs, when answers drawn in two ways would be mixed.

    Compares the parts that both have.
    """
    both = [name for name in known if name in now]
    differing = [
        f"{name} was {known[name]!r}, now {now[name]!r}" for name in both if known[name] != now[name]
    ]
    if differing:
        raise Conflict(
            f"The answers kept in this folder were drawn otherwise: {'; '.join(differing)}. "
            "Give another --out, or --anew to set them aside and draw again."
        )
