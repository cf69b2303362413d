"""The command `evaluate`: read files, draw and store missing answers, write results, page and figures."""

import asyncio
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.baselines import TransformersEntailment, by_entailment
from lab.experiments import Evaluation, make_results, provenance
from lab.figures import figures, tables
from lab.kernels import Cost, compare_kernels, scores
from lab.page import render_evaluation
from lab.resampling import DEFAULT, Resamples
from lab.splits import Split
from service.calibration.files import read_file
from service.calibration.fitting import Stream, rng
from service.calibration.labels import LabelledRows
from service.calibration.material import (
    DevSet,
    all_texts,
    answered,
    assemble,
    check_made_by,
    full_number,
    texts_of,
    usable_rows,
)
from service.calibration.rows import DevRow, draws_from_json, draws_to_json
from service.claims.comparison import Compare, Comparer, Comparison
from service.embedding.port import FACTS, PAPER, Embedder, Kernel
from service.errors import BodyTooLarge, Conflict, EigencalError, InvalidDevData, LLMError
from service.jobs.calibrator import REFUSALS, RetryPolicy, order_of, row_request
from service.llm.ask import Asker, Reply
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Priority
from service.llm.samples import Draw, supplied_draws
from service.llm.weights import sha256_of
from service.scoring.score import Serving

# Gives up early: someone waits at the terminal, and the next run resumes.
PATIENCE = RetryPolicy(give_up_s=120.0)
Floats = NDArray[np.float64]
CHUNK = 64  # texts per update of the progress bar


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """A file of an evaluation. rows: checked, with the file's answers. total: number of rows in the file."""

    rows: Sequence[DevRow]
    total: int

    @property
    def supplied(self) -> bool:
        """True if the file has the answers."""
        return all(row.samples is not None for row in self.rows)


def read_evaluation_file(path: Path, limit: int | None = None) -> EvaluationFile:
    """Return the first `limit` rows of a file.

    Raises BodyTooLarge, or InvalidDevData, for example if only some rows have answers. Both errors name the
    file.
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
    rows = [
        replace(row, draws=supplied_draws(row.samples or (), row.logprobs), complete=True)
        for row in islice(data.rows(), limit)
    ]
    return EvaluationFile(rows, data.num_rows)


@dataclass(frozen=True, slots=True)
class Plan:
    """The arguments of an evaluation.

    limit: number of rows to use of each file. num_samples: answers per prompt; None: the largest number that
    nine rows in ten have, or the settings' number for answers drawn. compare: "llm" also judges the kernel by
    which the LLM compares answers.
    """

    dev: Path
    test: Path
    out: Path
    limit: int | None = None
    num_samples: int | None = None
    seed: int = 0
    compare: Compare = "embeddings"
    resamples: Resamples = DEFAULT


@dataclass(frozen=True, slots=True)
class Components:
    """The components of an evaluation. The language model is started only if answers are missing.

    slots: number of concurrent requests. version: version of the service.
    """

    llm: LLM
    embedder: Embedder
    serving: Serving
    slots: int = 1
    entailment: TransformersEntailment | None = None
    version: str = ""


def evaluate(plan: Plan, parts: Components) -> dict[str, Any]:
    """Run the evaluation; write results.json, report.html, tables.md and figures. Drawn answers are reused.

    Raises EigencalError, or OSError if the folder cannot be created or written to.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    columns = TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        results = asyncio.run(_Run(plan, parts, progress).results())
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    (plan.out / "results.json").write_text(f"{text}\n", encoding="utf-8")
    (plan.out / "report.html").write_text(render_evaluation(results), encoding="utf-8")
    (plan.out / "tables.md").write_text(tables(results), encoding="utf-8")
    folder = plan.out / "figures"
    folder.mkdir(exist_ok=True)
    for name, svg in figures(results).items():
        (folder / f"{name}.svg").write_text(f"{svg}\n", encoding="utf-8")
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
        # The embedder starts first, so that a missing one is noticed before an hour of drawing answers.
        await embedder.start()
        try:
            await embedder.check()
            drawn, answers = await self._drawn(files)
            rows = {name: answered(drawn.get(name) or file.rows) for name, file in files.items()}
            m = plan.num_samples or min(
                full_number([len(r.draws) for r in of_file], None) for of_file in rows.values()
            )
            usable = {
                name: usable_rows(of_file, m, rng(plan.seed, Stream.COPIES))[0]
                for name, of_file in rows.items()
            }
            [((dev,), _), ((test,), vectors)] = [
                await self._materials(name, of_file, m, {PAPER: ()}) for name, of_file in usable.items()
            ]
            check_made_by(dev.made_by, test.made_by)
            compared = await self._kernels(usable, m) if plan.compare == "llm" else None
        finally:
            await embedder.stop()
        origin = self._provenance(files, answers)
        return await asyncio.to_thread(self._experiments, dev, test, vectors, origin, files, compared)

    def _stage(self, name: str, total: int) -> Callable[[int], None]:
        """Show a new progress bar and return the function that advances it."""
        return partial(self._progress.advance, self._progress.add_task(name, total=total))

    async def _drawn(
        self, files: dict[str, EvaluationFile]
    ) -> tuple[dict[str, list[DevRow]], dict[str, dict[str, Any]] | None]:
        """Return the rows of the files without answers, with answers drawn, and the set-up of the draws.

        The set-up is by kind of row ("prompt", "messages"), None if no file lacks answers.
        """
        lacking = {name: file for name, file in files.items() if not file.supplied}
        if not lacking:
            return {}, None
        llm, serving, rows = self._parts.llm, self._parts.serving, {}
        wanted = self._plan.num_samples or serving.num_samples
        await llm.start()
        try:
            requests = {
                name: [(row, row_request(serving, row, wanted)) for row in file.rows]
                for name, file in lacking.items()
            }
            # Every key includes the model's name, which is unknown if the server was down at the start.
            if any(not llm.identity(request).model for pairs in requests.values() for _, request in pairs):
                await PATIENCE.keep_trying(llm.check, _silent)
            # Before the first answer, because a server may report another model name with it.
            keyed = {
                name: [(row, request, answer_key(name, row, setup(llm, request))) for row, request in pairs]
                for name, pairs in requests.items()
            }
            kept = AnswerFile(self._plan.out / "answers.jsonl")
            for name, items in keyed.items():
                rows[name] = await self._draw_all(name, items, kept)
            all_pairs = [pair for pairs in requests.values() for pair in pairs]
            kinds = {"prompt" if row.messages is None else "messages": request for row, request in all_pairs}
            return rows, {kind: setup(llm, request) for kind, request in kinds.items()}
        finally:
            await llm.stop()

    async def _draw_all(
        self, name: str, items: Sequence[tuple[DevRow, GenerationRequest, str]], kept: "AnswerFile"
    ) -> list[DevRow]:
        """Return every row with its answers. Stored answers are not drawn again.

        Raises the model's error once `PATIENCE` gives up.
        """
        advance, free = self._stage(f"{name}: answers", len(items)), asyncio.Semaphore(self._parts.slots)

        async def work(row: DevRow, request: GenerationRequest, key: str) -> DevRow:
            async with free:
                draws = kept.get(key)
                while len(draws) < request.num_samples:
                    missing = replace(request, num_samples=request.num_samples - len(draws))
                    drawn = await PATIENCE.keep_trying(partial(self._parts.llm.generate, missing), _silent)
                    kept.add(key, drawn.draws)
                    draws = kept.get(key)
            advance(1)
            return replace(row, draws=tuple(draws[: request.num_samples]), complete=True)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work(*item)) for item in items]
        except* (EigencalError, OSError) as errors:
            # A task group wraps even a single error, but callers expect the plain error.
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _materials(
        self, name: str, rows: list[DevRow], num_samples: int, kernels: Mapping[Kernel, Sequence[Floats]]
    ) -> tuple[list[DevSet], dict[str, NDArray[np.float32]]]:
        """Return the rows under each kernel, and the vector (d,) of each text that the kernels embed.

        kernels: with an LLM's comparisons, if it compares.

        The kernels must take embeddings of the same texts.
        """
        embedder = self._parts.embedder
        texts = all_texts(rows, next(iter(kernels)))
        advance = self._stage(f"{name}: vectors", len(texts))
        chunks = []
        for start in range(0, len(texts), CHUNK):
            chunks.append(await embedder.embed(texts[start : start + CHUNK]))
            advance(len(chunks[-1].vectors))
        check_made_by(*(chunk.made_by for chunk in chunks))
        vectors = np.concatenate([chunk.vectors for chunk in chunks])
        place = {text: i for i, text in enumerate(texts)}
        made_by, dimension = chunks[0].made_by, embedder.identity.dimension
        materials = [
            replace(
                assemble(rows, num_samples, vectors, place, dimension, kernel, same),
                made_by=replace(made_by, kernel=kernel),
            )
            for kernel, same in kernels.items()
        ]
        return materials, dict(zip(texts, vectors, strict=True))

    async def _kernels(self, files: Mapping[str, list[DevRow]], num_samples: int) -> dict[str, Any]:
        """Return the kernel of facts beside the kernel by which the LLM compares answers."""
        llm, kept = self._parts.llm, ReplyFile(self._plan.out / "compared.jsonl")
        await llm.start()
        try:
            comparer = Comparer(Asker(llm, self._parts.slots))
            same = {name: await self._compared(name, rows, comparer, kept) for name, rows in files.items()}
        finally:
            await llm.stop()
        if not kept.model:
            raise LLMError("The LLM has compared no answers: it refuses, or replies with neither Yes nor No.")
        pairs = {
            name: (await self._materials(name, rows, num_samples, {FACTS: (), "llm": same[name]}))[0]
            for name, rows in files.items()
        }
        questions = sum(len(rows) for rows in files.values())
        by_facts, by_llm = (scores(pairs["dev"][k], pairs["test"][k]) for k in (0, 1))
        cost, plan = kept.cost(questions), self._plan
        return compare_kernels(by_facts, by_llm, kept.model, cost, plan.seed, plan.resamples)

    async def _compared(
        self, name: str, rows: Sequence[DevRow], comparer: Comparer, kept: "ReplyFile"
    ) -> list[Floats]:
        """Return P(same) of the `texts_of` each row, (k, k). Stored replies are not asked for again.

        A row that the server refuses has NaN. Raises Conflict if two models compare, and the model's error
        once `PATIENCE` gives up.
        """
        advance, found = self._stage(f"{name}: comparisons", len(rows)), list[Floats]()
        for row in rows:
            texts = texts_of(row)
            compare = partial(
                comparer.compare,
                row.question or "",
                texts,
                *order_of(row),
                priority=Priority.JOB,
                known=kept.replies,
            )
            try:
                comparison = await PATIENCE.keep_trying(compare, _silent)
            except LLMError as error:
                if error.extra.get("llm_status") not in REFUSALS:
                    raise
                found.append(np.full((len(texts), len(texts)), np.nan))
            else:
                kept.add(comparison)
                found.append(comparison.same)
            advance(1)
        return found

    def _experiments(
        self,
        dev: DevSet,
        test: DevSet,
        vectors: dict[str, NDArray[np.float32]],
        origin: dict[str, Any],
        files: dict[str, EvaluationFile],
        compared: dict[str, Any] | None,
    ) -> dict[str, Any]:
        plan, split = self._plan, Split(LabelledRows(test))
        context = Evaluation(
            Split(LabelledRows(dev)), split, vectors, seed=plan.seed, resamples=plan.resamples
        )
        meanings = None
        if self._parts.entailment is not None:
            advance = self._stage("entailment", len(split))
            meanings = by_entailment(split, self._parts.entailment, partial(advance, 1))
        task = self._progress.add_task("experiments", total=None)

        def report(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)

        rows = files["dev"].total, files["test"].total
        return make_results(context, rows, origin, meanings, compared, report)

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
    """Ignore a message about retries: the progress bar shows that nothing advances."""


def setup(llm: LLM, request: GenerationRequest) -> dict[str, Any]:
    """Return the set-up that determines the answers to a prompt: parts of a fingerprint, without a seed."""
    sampling = {
        f"sampling.{name}": value for name, value in asdict(request.sampling).items() if name != "seed"
    }
    return {**llm.identity(request).parts(), **sampling, "sampling.stop": list(request.sampling.stop)}


def answer_key(split: str, row: DevRow, drawn_with: dict[str, Any]) -> str:
    """Return the key of a row's answers: a hash of file, line, prompt and set-up, but not of their number."""
    messages = [[m.role, m.content] for m in row.messages or ()]
    parts = [split, row.line, row.prompt, messages, drawn_with]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


class ReplyFile:
    """Replies of the comparing LLM, one line per row, written to disk before the next row is compared.

    replies: by key. model: the comparing model, "" before its first reply. If a crash cuts a line, only its
    row is asked for again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.replies: dict[str, Reply] = {}
        self.model = ""
        self._tokens: dict[str, float] = {}  # by key: the mean of the line
        self._used = set[str]()
        for line in _complete_lines(path):
            self._keep(line)

    def add(self, comparison: Comparison) -> None:
        """Count a comparison, and store its new replies. Raises Conflict if another model has compared."""
        if not comparison.replies:
            return
        if self.model not in ("", comparison.model):
            raise Conflict(f"Two models compared answers: {self.model!r} and {comparison.model!r}.")
        self.model = comparison.model
        self._used |= comparison.replies.keys()
        # The first row is asked for again, since the model is not known before.
        new = {key: yes for key, (yes, _) in comparison.replies.items() if key not in self.replies}
        if new:
            tokens = comparison.usage.prompt_tokens + comparison.usage.completion_tokens
            line = {"model": self.model, "tokens": tokens, "replies": new}
            _append(self._path, line)
            self._keep(line)

    def cost(self, questions: int) -> Cost:
        """Return the cost of the rows that this run compares. It includes replies of earlier runs."""
        return Cost(len(self._used), math.fsum(self._tokens[key] for key in self._used), questions)

    def _keep(self, line: dict[str, Any]) -> None:
        for key, yes in line["replies"].items():
            self.replies[key] = yes, line["model"]
            self._tokens[key] = line["tokens"] / len(line["replies"])


class AnswerFile:
    """Answers drawn, one line per batch, written to disk before the next batch is requested.

    If a crash cuts a line, only its batch is lost.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[str, list[Draw]] = {}
        for line in _complete_lines(path):
            self._answers.setdefault(line["key"], []).extend(draws_from_json(line["draws"]))

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers stored under a key."""
        return self._answers.get(key, ())

    def add(self, key: str, draws: Sequence[Draw]) -> None:
        """Store answers under a key and flush them to disk."""
        _append(self._path, {"key": key, "draws": draws_to_json(draws)})
        self._answers.setdefault(key, []).extend(draws)


def _complete_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each line. A last line that a crash has cut is removed from the file."""
    data = path.read_bytes() if path.exists() else b""
    complete = data.rfind(b"\n") + 1
    if complete < len(data):
        # Otherwise the next line would be appended to half a line, and neither could be read.
        os.truncate(path, complete)
    yield from map(json.loads, data[:complete].splitlines())


def _append(path: Path, line: dict[str, Any]) -> None:
    """Append a line of JSON and flush it to disk."""
    with path.open("ab") as file:
        file.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        file.flush()
        os.fsync(file.fileno())
