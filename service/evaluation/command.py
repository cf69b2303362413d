"""The command `evaluate`: files in, answers and vectors kept on the way, report and figures out."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from service.calibration.fitting import Stream, rng
from service.calibration.material import Material, all_texts, answered, assemble, full_number, usable_rows
from service.calibration.rows import DevRow, StoredRow
from service.embedding.outcomes import outcome_vectors, supplied_draws, texts_to_embed
from service.embedding.port import Embedder, EmbedderIdentity
from service.errors import BodyTooLarge, EigencalError, InvalidDevData
from service.evaluation.baselines import (
    EntailmentModel,
    by_entailment,
    choose_sampling,
    drawn,
    judge_sampling,
    not_drawn,
    recorded,
)
from service.evaluation.files import EvaluationFile, Recorded, read_evaluation_file
from service.evaluation.kept import AnswerFile, KeptVectors, make_folder, rename_aside, write_results
from service.evaluation.results import DataFile, DrawnAnswers, Experiment, Provenance, Results, provenance
from service.evaluation.study import FileFacts, Inputs, make_results
from service.jobs.drawing import row_request
from service.jobs.waiting import Patience
from service.llm.port import Draw, GenerationRequest, LanguageModel, LLMIdentity
from service.llm.weights import sha256_of
from service.report.diagnostics import EvaluationContext, Split, make_split
from service.scoring.serving import Serving
from service.spectral.resampling import DEFAULT, Resamples

SUPPLIED = (
    "The files hold supplied samples only, drawn at one sampling temperature; other temperatures need the "
    "model that drew them. Give files without samples, and an LLM by the settings."
)
NOT_ASKED = "No sampling temperatures were given; give --sampling-temperature at least twice."
# An evaluation runs at a terminal: someone waits, and it goes on where it stopped.
PATIENCE = Patience(give_up_s=120.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked. limit: rows taken of each file; num_samples: answers per prompt, None: those there.

    anew: set aside the answers kept in the folder, and draw again.
    """

    dev: Path
    test: Path
    out: Path
    limit: int | None = None
    num_samples: int | None = None
    sampling_temperatures: tuple[float, ...] = ()
    seed: int = 0
    anew: bool = False
    resamples: Resamples = DEFAULT


@dataclass(frozen=True, slots=True)
class Components:
    """The components an evaluation works with. The language model is started only where answers are missing.

    slots: requests at once; version: of the service; now: the clock, for the results' date.
    """

    llm: LanguageModel
    embedders: Sequence[Embedder]
    serving: Serving
    slots: int = 1
    entailment: EntailmentModel | None = None
    version: str = ""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(slots=True)
class Run:
    """One run of the command. kept: the answers drawn here, once any are asked for; model: asked for them."""

    plan: Plan
    parts: Components
    progress: Progress
    kept: AnswerFile | None = None
    model: str = ""

    def stage(self, name: str, total: int) -> Callable[[int], None]:
        """Show a new bar; return what moves it on."""
        return partial(self.progress.advance, self.progress.add_task(name, total=total))


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Both files with their answers: m of them per prompt, and all of them (`deep`) where there are more."""

    dev: list[StoredRow]
    test: list[StoredRow]
    deep: list[StoredRow]
    num_samples: int


def evaluate(plan: Plan, parts: Components) -> Results:
    """Run the evaluation and write its files; a second run goes on where it stopped.

    Raises EigencalError, and OutFolderError before anything is read, drawn or embedded.
    """
    make_folder(plan.out)
    columns = TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        results = asyncio.run(_evaluate(Run(plan, parts, progress)))
    write_results(plan.out, results)
    return results


async def _evaluate(run: Run) -> Results:
    dev, test = read(run.plan.dev, run.plan.limit), read(run.plan.test, run.plan.limit)
    if not (dev.supplied and test.supplied):
        await _try_embedders(run.parts.embedders)
    contexts: dict[str, EvaluationContext] = {}
    identities: list[EmbedderIdentity] = []  # asked while it runs: some know theirs only then
    try:
        rows = await _gathered(run, dev, test)
        for embedder in run.parts.embedders:
            await embedder.start()
            try:
                context = await _context(run, rows, embedder)
                identities.append(embedder.identity)
                name = embedder.identity.name
                contexts[f"{name} ({len(contexts) + 1})" if name in contexts else name] = context
                # Of the first embedder alone, the one that all experiments use.
                if len(contexts) == 1:
                    context.deep = await _uncut(run, rows, embedder) or context.deep
                    baseline = await _sampling_temperature(run, dev, test, rows.num_samples, embedder)
            finally:
                await embedder.stop()
    finally:
        if run.kept is not None:
            await run.parts.llm.stop()
    return await asyncio.to_thread(_results, run, (dev, test), rows, contexts, identities, baseline)


async def _try_embedders(embedders: Sequence[Embedder]) -> None:
    """Load each embedder once: one that is missing must not be noticed after an hour of drawing answers."""
    for embedder in embedders:
        try:
            await embedder.start()
            await embedder.check()
        finally:
            await embedder.stop()


def _results(
    run: Run,
    files: tuple[EvaluationFile, EvaluationFile],
    rows: GatheredRows,
    contexts: Mapping[str, EvaluationContext],
    embedders: Sequence[EmbedderIdentity],
    baseline: Experiment,
) -> Results:
    dev, test = files
    split = next(iter(contexts.values())).test
    meanings = None
    if run.parts.entailment is not None:
        advance = run.stage("entailment", len(split))
        meanings = by_entailment(split, run.parts.entailment, partial(advance, 1))
    likelihoods = recorded(split, test.recorded) if test.supplied else drawn(split)
    inputs = Inputs(contexts, meanings, likelihoods, baseline)
    facts = FileFacts(dev.total, _depth(dev, rows)), FileFacts(test.total, _depth(test, rows))
    task = run.progress.add_task("experiments", total=None)

    def report(done: int, total: int, what: str) -> None:
        run.progress.update(task, completed=done, total=total, description=f"experiments: {what}")

    return make_results(inputs, facts, _provenance(run, files, embedders), report)


def _depth(file: EvaluationFile, rows: GatheredRows) -> int:
    return max((len(row.samples) for row in file.rows if row.samples is not None), default=rows.num_samples)


def _provenance(
    run: Run, files: tuple[EvaluationFile, EvaluationFile], embedders: Sequence[EmbedderIdentity]
) -> Provenance:
    paths = {"dev": run.plan.dev, "test": run.plan.test}
    data = {
        split: DataFile(file.supplied, path.name, sha256_of(path))
        for (split, path), file in zip(paths.items(), files, strict=True)
    }
    answers: DrawnAnswers | None = None
    if run.kept is not None:
        answers = {
            "model": run.kept.model,
            "answered_as": run.kept.answered_as,
            "setups": run.kept.setups,
        }
    return provenance(data, answers, embedders, version=run.parts.version, now=run.parts.now())


def read(path: Path, limit: int | None) -> EvaluationFile:
    """Return the first `limit` rows of a file. Raises InvalidDevData, BodyTooLarge, which name it."""
    with path.open("rb") as file:
        try:
            return read_evaluation_file(file, limit)
        except (InvalidDevData, BodyTooLarge) as error:
            error.detail = f"{path}: {error.detail}"
            raise


async def _gathered(run: Run, dev: EvaluationFile, test: EvaluationFile) -> GatheredRows:
    """Return both files with their answers, drawing what is missing. Raises what drawing raises."""
    asked, empty_answers = run.plan.num_samples, run.parts.embedders[0].empty_answers
    files = [
        supplied(file.rows, file.recorded)
        if file.supplied
        else await _draw_all(run, split, file, "answers", run.parts.serving)
        for split, file in (("dev", dev), ("test", test))
    ]
    both = [answered(rows, empty_answers) for rows in files]
    sizes = [full_number([len(one.draws) for one in rows], asked) for rows in both]
    m = asked or min(sizes)
    kept = [_usable(run, rows, m) for rows in both]
    return GatheredRows(kept[0], kept[1], both[int(np.argmax(sizes))], m)


def supplied(rows: Sequence[DevRow], recorded: Mapping[int, Recorded] | None = None) -> list[StoredRow]:
    """Return rows that came with their answers; recorded: by line, what else the file says of them."""
    known = recorded or {}
    return [
        StoredRow(row, _supplied(row, known.get(row.line, Recorded()).tokens), complete=True) for row in rows
    ]


def _supplied(row: DevRow, tokens: Sequence[float]) -> tuple[Draw, ...]:
    draws = supplied_draws(row.samples or (), row.logprobs)
    if len(tokens) != len(draws):
        return draws
    return tuple(replace(draw, num_tokens=int(one)) for draw, one in zip(draws, tokens, strict=True))


def _usable(run: Run, rows: list[StoredRow], num_samples: int) -> list[StoredRow]:
    return usable_rows(rows, num_samples, rng(run.plan.seed, Stream.COPIES))[0]


async def _draw_all(
    run: Run, split: str, file: EvaluationFile, what: str, serving: Serving
) -> list[StoredRow]:
    """Return every row with its answers, those that are kept not drawn again.

    Raises Conflict when those kept were drawn otherwise, and what the model raises once patience ends.
    """
    kept = run.kept or await _open_answers(run, file)
    # By the set-up of the run, also at another sampling temperature: that is part of an answer's key.
    kept.agree(run.model, _setups(run.parts.llm, run.parts.serving, file.rows))
    advance = run.stage(f"{split}: {what}", len(file.rows))
    wanted = run.plan.num_samples or serving.num_samples
    free = asyncio.Semaphore(run.parts.slots)

    async def work(row: DevRow) -> StoredRow:
        async with free:
            draws = await _draw(run, kept, split, row, row_request(serving, row, wanted))
        advance(1)
        return StoredRow(row, draws, complete=True)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(row)) for row in file.rows]
    except* EigencalError as errors:
        # A task group wraps even a single error; callers know ours, not groups.
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _open_answers(run: Run, file: EvaluationFile) -> AnswerFile:
    """Start the language model, and open what it has answered before."""
    llm, path = run.parts.llm, run.plan.out / "answers.jsonl"
    if run.plan.anew:
        rename_aside(path)
    run.kept = AnswerFile(path)
    await llm.start()
    run.model = llm.identity(row_request(run.parts.serving, file.rows[0], 1)).model
    return run.kept


async def _draw(
    run: Run, kept: AnswerFile, split: str, row: DevRow, request: GenerationRequest
) -> tuple[Draw, ...]:
    llm, wanted = run.parts.llm, request.num_samples
    key = answer_key(split, row, request, llm.identity(request))
    draws = tuple(kept.get(key))[:wanted]
    while len(draws) < wanted:
        asked = replace(request, num_samples=wanted - len(draws))
        drawn = await PATIENCE.keep_trying(partial(llm.generate, asked), _silent)
        kept.add(key, drawn.draws, run.model or drawn.model, drawn.model)
        draws = (*draws, *drawn.draws)[:wanted]
    return draws


async def _silent(_: str) -> None:
    """Say nothing: the bar stands still meanwhile."""


def answer_key(split: str, row: DevRow, request: GenerationRequest, llm: LLMIdentity) -> str:
    """Return what makes two draws the same: file, line, prompt, its shape, sampling; not the number asked.

    The model is left out: a server tells its name with the first answer only.
    """
    messages = [[m.role, m.content] for m in request.messages or ()]
    sampling = {**asdict(request.sampling), "seed": None}
    shape = [llm.api, llm.prompt_shape, llm.answer_regex]
    parts = [split, row.line, request.prompt, messages, sampling, shape]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _setups(llm: LanguageModel, serving: Serving, rows: Sequence[DevRow]) -> dict[str, dict[str, Any]]:
    """Return what decides the answers to these rows beside the model, by kind of row: prompt, messages.

    The seed is no part of it: an evaluation sends none of its own.
    """
    kinds = {"prompt" if row.messages is None else "messages": row for row in rows}
    setups = {}
    for kind, row in kinds.items():
        request = row_request(serving, row, 1)
        identity = {k: v for k, v in llm.identity(request).parts().items() if k != "model"}
        sampling = {f"sampling.{k}": v for k, v in asdict(request.sampling).items() if k != "seed"}
        setups[kind] = {**identity, **sampling, "sampling.stop": list(request.sampling.stop)}
    return setups


async def _context(run: Run, rows: GatheredRows, embedder: Embedder) -> EvaluationContext:
    """Return both files as seen by a started embedder."""
    dev = await _split(run, embedder, "dev: vectors", rows.dev, rows.num_samples)
    test = await _split(run, embedder, "test: vectors", rows.test, rows.num_samples)
    return EvaluationContext(dev, test, seed=run.plan.seed, resamples=run.plan.resamples)


async def _uncut(run: Run, rows: GatheredRows, embedder: Embedder) -> Material | None:
    """Return the file with more answers than the fit uses, all of them; None where there are no more."""
    m = full_number([len(one.draws) for one in rows.deep], None)
    if m <= rows.num_samples:
        return None
    return await _material(run, embedder, "all answers: vectors", _usable(run, rows.deep, m), m)


async def _split(run: Run, embedder: Embedder, stage: str, rows: list[StoredRow], num_samples: int) -> Split:
    return await asyncio.to_thread(make_split, await _material(run, embedder, stage, rows, num_samples))


async def _material(
    run: Run, embedder: Embedder, stage: str, rows: list[StoredRow], num_samples: int
) -> Material:
    texts = all_texts(rows)
    embedded = texts_to_embed(texts, embedder.empty_answers)
    advance = run.stage(f"{stage} ({embedder.identity.name})", len(embedded))
    kept = KeptVectors(embedder, run.plan.out / "vectors")
    vectors = outcome_vectors(texts, await kept.vectors(embedded, advance))
    place = {text: i for i, text in enumerate(texts)}
    return assemble(rows, num_samples, vectors, place, embedder.identity.dimension)


async def _sampling_temperature(
    run: Run, dev: EvaluationFile, test: EvaluationFile, num_samples: int, embedder: Embedder
) -> Experiment:
    """Return the sampling-temperature baseline, drawn at every temperature asked for."""
    if dev.supplied or test.supplied:
        return not_drawn(SUPPLIED)
    if len(run.plan.sampling_temperatures) < 2:
        return not_drawn(NOT_ASKED)
    at = partial(_drawn_at, run, embedder, num_samples)
    choice = choose_sampling({t: await at("dev", dev, t) for t in run.plan.sampling_temperatures})
    chosen = await at("test", test, choice.sampling_temperature)
    return await asyncio.to_thread(judge_sampling, choice, chosen, run.plan.seed, run.plan.resamples.nulls)


async def _drawn_at(
    run: Run, embedder: Embedder, num_samples: int, split: str, file: EvaluationFile, temperature: float
) -> Split:
    serving = run.parts.serving
    warmer = replace(
        serving,
        sampling=replace(serving.sampling, temperature=temperature),
        messages_sampling=replace(serving.messages_sampling, temperature=temperature),
    )
    what = f"at sampling temperature {temperature:g}"
    rows = answered(await _draw_all(run, split, file, what, warmer), embedder.empty_answers)
    usable = _usable(run, rows, num_samples)
    return await _split(run, embedder, f"{split} {what}: vectors", usable, num_samples)
