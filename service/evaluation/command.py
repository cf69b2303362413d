"""The command `evaluate`: files in, answers drawn and kept, report and results out."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from service.calibration.files import read_file
from service.calibration.fitting import Stream, rng
from service.calibration.labels import FullRows
from service.calibration.material import (
    Material,
    all_texts,
    answered,
    assemble,
    check_made_by,
    full_number,
    usable_rows,
)
from service.calibration.rows import DevRow, check_row, draws_from_json, draws_to_json
from service.embedding.port import PAPER, Embedder, outcome_vectors, supplied_draws, texts_to_embed
from service.errors import BodyTooLarge, EigencalError, InvalidDevData
from service.evaluation.baselines import TransformersEntailment, by_entailment
from service.evaluation.experiments import make_results, provenance
from service.evaluation.page import render_evaluation
from service.jobs.calibrator import Patience, row_request
from service.llm.port import Draw, GenerationRequest, LanguageModel
from service.llm.weights import sha256_of
from service.report.diagnostics import EvaluationContext, Split
from service.scoring.score import Serving
from service.spectral.resampling import DEFAULT, Resamples

# An evaluation runs at a terminal: someone waits, and it goes on where it stopped.
PATIENCE = Patience(give_up_s=120.0)
CHUNK = 64  # texts between two moves of the bar


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """A file of an evaluation. rows: checked, with the answers that they came with; total: rows in it."""

    rows: Sequence[DevRow]
    total: int

    @property
    def supplied(self) -> bool:
        """Whether the answers came with the file."""
        return all(one.samples is not None for one in self.rows)


def read_evaluation_file(path: Path, limit: int | None = None) -> EvaluationFile:
    """Return the first `limit` rows.

    Raises BodyTooLarge, and InvalidDevData, also when some rows have answers and others have none; both name
    the file.
    """
    try:
        with path.open("rb") as file:
            return _read(file, limit)
    except (InvalidDevData, BodyTooLarge) as error:
        error.detail = f"{path}: {error.detail}"
        raise


def _read(file: BinaryIO, limit: int | None) -> EvaluationFile:
    data = read_file(file)
    if len({row.samples is None for row in data.rows()}) > 1:
        raise InvalidDevData("Some rows carry samples and the rest do not: all must or none.")
    rows = []
    for line, raw in islice(data.raw_rows(), limit):
        row = check_row(line, raw)
        draws = supplied_draws(row.samples or (), row.logprobs)
        tokens = _counts(raw.get("tokens") if isinstance(raw, dict) else None)
        if len(tokens) == len(draws):
            draws = tuple(replace(one, num_tokens=n) for one, n in zip(draws, tokens, strict=True))
        rows.append(replace(row, draws=draws, complete=True))
    return EvaluationFile(rows, data.num_rows)


def _counts(values: object) -> Sequence[int]:
    """Return numbers of tokens, from 1 on; nothing unless every one is."""
    if not isinstance(values, list):
        return ()
    good = all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 1 for v in values)
    return tuple(int(v) for v in values) if good else ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked. limit: rows taken of each file; num_samples: answers per prompt, None: those there."""

    dev: Path
    test: Path
    out: Path
    limit: int | None = None
    num_samples: int | None = None
    seed: int = 0
    resamples: Resamples = DEFAULT


@dataclass(frozen=True, slots=True)
class Components:
    """The components an evaluation works with. The language model is started only where answers are missing.

    slots: requests at once; version: of the service.
    """

    llm: LanguageModel
    embedder: Embedder
    serving: Serving
    slots: int = 1
    entailment: TransformersEntailment | None = None
    version: str = ""


def evaluate(plan: Plan, parts: Components) -> dict[str, Any]:
    """Run the evaluation and write report.html and results.json; a second run draws no answer twice.

    Raises EigencalError, and OSError where the folder cannot be made or written to.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    columns = TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        results = asyncio.run(_Run(plan, parts, progress).results())
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    (plan.out / "results.json").write_text(f"{text}\n", encoding="utf-8")
    (plan.out / "report.html").write_text(render_evaluation(results), encoding="utf-8")
    return results


class _Run:
    """One run of the command."""

    def __init__(self, plan: Plan, parts: Components, progress: Progress) -> None:
        self._plan, self._parts, self._progress = plan, parts, progress

    async def results(self) -> dict[str, Any]:
        plan, embedder = self._plan, self._parts.embedder
        files = {
            "dev": read_evaluation_file(plan.dev, plan.limit),
            "test": read_evaluation_file(plan.test, plan.limit),
        }
        # First: an embedder that is missing must not be noticed after an hour of drawing answers.
        await embedder.start()
        try:
            await embedder.check()
            drawn, answers = await self._drawn(files)
            rows = {
                name: answered(drawn.get(name) or file.rows, embedder.empty_answers)
                for name, file in files.items()
            }
            m = plan.num_samples or min(
                full_number([len(r.draws) for r in one], None) for one in rows.values()
            )
            dev, test = [await self._material(name, one, m) for name, one in rows.items()]
            check_made_by(dev.made_by, test.made_by)
        finally:
            await embedder.stop()
        return await asyncio.to_thread(self._experiments, dev, test, self._provenance(files, answers), files)

    def _stage(self, name: str, total: int) -> Callable[[int], None]:
        """Show a new bar; return what moves it on."""
        return partial(self._progress.advance, self._progress.add_task(name, total=total))

    async def _drawn(
        self, files: dict[str, EvaluationFile]
    ) -> tuple[dict[str, list[DevRow]], dict[str, dict[str, Any]] | None]:
        """Return the rows of the files that lack answers with theirs, and what they were drawn with."""
        lacking = {name: file for name, file in files.items() if not file.supplied}
        if not lacking:
            return {}, None
        llm, serving, rows = self._parts.llm, self._parts.serving, {}
        wanted = self._plan.num_samples or serving.num_samples
        await llm.start()
        try:
            requests = {
                name: [(one, row_request(serving, one, wanted)) for one in file.rows]
                for name, file in lacking.items()
            }
            # A server that was not up at the start has not named its model, which is part of every key.
            if any(not llm.identity(one).model for pairs in requests.values() for _, one in pairs):
                await PATIENCE.keep_trying(llm.check, _silent)
            # Before the first answer, with which a server may change the name of its model.
            asked = {
                name: [(row, one, answer_key(name, row, one, setup(llm, one))) for row, one in pairs]
                for name, pairs in requests.items()
            }
            kept = AnswerFile(self._plan.out / "answers.jsonl")
            for name, items in asked.items():
                rows[name] = await self._draw_all(name, items, kept)
            every = [pair for pairs in requests.values() for pair in pairs]
            kinds = {"prompt" if row.messages is None else "messages": one for row, one in every}
            return rows, {kind: setup(llm, one) for kind, one in kinds.items()}
        finally:
            await llm.stop()

    async def _draw_all(
        self, name: str, items: Sequence[tuple[DevRow, GenerationRequest, str]], kept: "AnswerFile"
    ) -> list[DevRow]:
        """Return every row with its answers, those that are kept not drawn again.

        Raises what the model raises once patience ends.
        """
        advance, free = self._stage(f"{name}: answers", len(items)), asyncio.Semaphore(self._parts.slots)

        async def work(row: DevRow, request: GenerationRequest, key: str) -> DevRow:
            async with free:
                draws = kept.get(key)
                while len(draws) < request.num_samples:
                    asked = replace(request, num_samples=request.num_samples - len(draws))
                    drawn = await PATIENCE.keep_trying(partial(self._parts.llm.generate, asked), _silent)
                    kept.add(key, drawn.draws)
                    draws = kept.get(key)
            advance(1)
            return replace(row, draws=tuple(draws[: request.num_samples]), complete=True)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(*item)) for item in items]
        except* (EigencalError, OSError) as errors:
            # A task group wraps even a single error; callers know these, not groups.
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _material(self, name: str, stored: list[DevRow], num_samples: int) -> Material:
        embedder = self._parts.embedder
        rows = usable_rows(stored, num_samples, rng(self._plan.seed, Stream.COPIES))[0]
        texts = all_texts(rows)
        embedded = texts_to_embed(texts, embedder.empty_answers)
        advance = self._stage(f"{name}: vectors", len(embedded))
        chunks = []
        for start in range(0, len(embedded), CHUNK):
            chunks.append(await embedder.embed(embedded[start : start + CHUNK]))
            advance(len(chunks[-1].vectors))
        check_made_by(*(one.made_by for one in chunks))
        vectors = outcome_vectors(texts, np.concatenate([one.vectors for one in chunks]))
        place = {text: i for i, text in enumerate(texts)}
        material = assemble(rows, num_samples, vectors, place, embedder.identity.dimension)
        return replace(material, made_by=replace(chunks[0].made_by, kernel=PAPER))

    def _experiments(
        self, dev: Material, test: Material, origin: dict[str, Any], files: dict[str, EvaluationFile]
    ) -> dict[str, Any]:
        plan, split = self._plan, Split(FullRows(test))
        context = EvaluationContext(Split(FullRows(dev)), split, seed=plan.seed, resamples=plan.resamples)
        meanings = None
        if self._parts.entailment is not None:
            advance = self._stage("entailment", len(split))
            meanings = by_entailment(split, self._parts.entailment, partial(advance, 1))
        task = self._progress.add_task("experiments", total=None)

        def report(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)

        return make_results(context, (files["dev"].total, files["test"].total), origin, meanings, report)

    def _provenance(
        self, files: dict[str, EvaluationFile], answers: dict[str, dict[str, Any]] | None
    ) -> dict[str, Any]:
        paths = {"dev": self._plan.dev, "test": self._plan.test}
        parts = {
            name: {
                "name": path.name,
                "sha256": sha256_of(path),
                "answers_from": "file" if files[name].supplied else "model",
            }
            for name, path in paths.items()
        }
        return provenance(self._parts.version, parts, answers, self._parts.embedder)


async def _silent(_: str) -> None:
    """Say nothing: the bar stands still meanwhile."""


def setup(llm: LanguageModel, request: GenerationRequest) -> dict[str, Any]:
    """Return what decides the answers beside the prompt: parts of a fingerprint, without a seed."""
    sampling = {
        f"sampling.{name}": value for name, value in asdict(request.sampling).items() if name != "seed"
    }
    return {**llm.identity(request).parts(), **sampling, "sampling.stop": list(request.sampling.stop)}


def answer_key(split: str, row: DevRow, request: GenerationRequest, drawn_with: dict[str, Any]) -> str:
    """Return what makes two draws the same: file, line, prompt, set-up; not the number asked."""
    messages = [[m.role, m.content] for m in request.messages or ()]
    parts = [split, row.line, request.prompt, messages, drawn_with]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


class AnswerFile:
    """Answers drawn, one line per batch, on the disk before the next is asked for.

    A line cut by a crash is dropped, and with it only that batch.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, list[Draw]] = {}
        data = path.read_bytes() if path.exists() else b""
        complete = data.rfind(b"\n") + 1
        for line in map(json.loads, data[:complete].splitlines()):
            self._answers.setdefault(line["key"], []).extend(draws_from_json(line["draws"]))
        if complete < len(data):
            # Else the next batch would be appended to half a line, and neither could be read.
            os.truncate(path, complete)

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept under a key."""
        return self._answers.get(key, ())

    def add(self, key: str, draws: Sequence[Draw]) -> None:
        """Append answers."""
        line = json.dumps({"key": key, "draws": draws_to_json(draws)}, ensure_ascii=False)
        with self._path.open("ab") as file:
            file.write(line.encode("utf-8", "replace") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._answers.setdefault(key, []).extend(draws)
