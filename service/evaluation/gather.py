"""The files of an evaluation: report, results, figures; each written whole or not at all."""

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.calibration.files import EvaluationFile, Recorded, read_evaluation_file
from service.calibration.fitting import Stream, rng
from service.calibration.material import (
    Material,
    all_texts,
    answered,
    assemble,
    check_made_by,
    full_number,
    usable_rows,
)
from service.calibration.rows import DevRow, StoredRow, draws_from_json, draws_to_json
from service.embedding.cache import Vectors
from service.embedding.outcomes import outcome_vectors, supplied_draws, texts_to_embed
from service.embedding.port import Embedder, EmbedderIdentity
from service.errors import BodyTooLarge, Conflict, EigencalError, InvalidDevData
from service.evaluation.experiments import EntailmentModel, choose, judge, not_drawn
from service.jobs.drawing import row_request
from service.jobs.waiting import Patience
from service.llm.port import Draw, GenerationRequest, LanguageModel, LLMIdentity
from service.progress import ShownProgress
from service.report.bench import Bench, Split, make_split
from service.report.model import Experiment, Results
from service.scoring.serving import Serving


class OutFolderError(Exception):
    """Nothing can be written where the results are to go; the message says why, in one line."""


def make_folder(out: Path) -> None:
    """Make the folder of the results. Raises OutFolderError unless it can be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        what = "it is a file" if out.is_file() else error.strerror or type(error).__name__
        raise OutFolderError(f"--out: cannot write into the folder {out}: {what}.") from None


def write_results(out: Path, results: Results) -> None:
    """Write report.html, results.json, and every figure as SVG and CSV under figures/.

    What an evaluation of other files has left there is renamed, so that nothing is lost.
    """
    from service.evaluation.page import evaluation_figures, evaluation_tables, render_evaluation

    # Drawn before anything is touched: should this fail, the old results are still whole.
    figures = evaluation_figures(results)
    if _of_other_files(out, results):
        _set_aside(out)
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    for name, svg in figures.items():
        write_whole(folder / f"{name}.svg", svg)
    for name, rows in evaluation_tables(results).items():
        write_whole(folder / f"{name}.csv", rows)
    write_whole(
        out / "results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )
    write_whole(out / "report.html", render_evaluation(results, figures))


def _of_other_files(out: Path, results: Results) -> bool:
    try:
        found = json.loads((out / "results.json").read_text(encoding="utf-8"))
        return bool(found["provenance"]["files"] != results["provenance"]["files"])
    except (OSError, ValueError, KeyError, TypeError):  # none there, or of a release that kept no provenance
        return False


def _set_aside(out: Path) -> None:
    """Rename results, report and figures: results-1.json and so on."""
    number = 1
    while (out / f"results-{number}.json").exists():
        number += 1
    for name in ("report.html", "figures", "results.json"):  # last what tells that it has not been done
        path = out / name
        if path.exists():
            path.rename(path.with_stem(f"{path.stem}-{number}"))


def write_whole(path: Path, text: str) -> None:
    """Write a text so that the file is the old one or the new one, never half of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


# Answers for rows that came without: drawn by the language model, kept as they come, never drawn twice.

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


# What is kept on the way: drawn answers and vectors, on the disk before anything counts on them.

SHARD = 128  # texts lost at most when a run is killed
CHUNK = 64  # texts between two moves of the bar


class AnswerFile:
    """One line per batch of answers. A line cut by a crash is dropped, and with it only that batch.

    What they were drawn with stands beside them, in a file of the same name that ends in .json, and is
    compared before any is given out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._manifest = path.with_suffix(".json")
        self._found: dict[str, list[Draw]] = {}
        self.model = self.answered_as = ""
        self.setups: dict[str, dict[str, Any]] = {}
        self._load()

    def agree(self, model: str, setups: Mapping[str, Mapping[str, Any]]) -> None:
        """Bind the file to a model ("": not known yet) and to set-ups by kind of row.

        Raises Conflict, which says what differs, when its answers were drawn otherwise.
        """
        check_same(_named(model=self.model), _named(model=model))
        for kind, setup in setups.items():
            check_same(self.setups.get(kind, {}), setup)
        if any(kind not in self.setups for kind in setups):
            self.setups = {**{kind: dict(one) for kind, one in setups.items()}, **self.setups}
            write_whole(self._manifest, json.dumps({"version": 1, "setups": self.setups}, indent=1) + "\n")

    def get(self, key: str) -> Sequence[Draw]:
        """Return the answers kept under a key."""
        return tuple(self._found.get(key, ()))

    def add(self, key: str, draws: Sequence[Draw], drawn_by: Mapping[str, Any], answered_as: str) -> None:
        """Append answers. Raises Conflict when the file holds those of another model."""
        check_same(
            _named(model=self.model, answered_as=self.answered_as),
            _named(model=drawn_by["model"], answered_as=answered_as),
        )
        said = {"answered_as": answered_as, "draws": draws_to_json(draws)}
        line = {"key": key, "drawn_by": dict(drawn_by), **said}
        self._append(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        self._take(line)

    def _append(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _take(self, line: Mapping[str, Any]) -> None:
        self._found.setdefault(line["key"], []).extend(draws_from_json(line["draws"]))
        self.model = line["drawn_by"]["model"] or self.model
        # Lines of before it was kept have none.
        self.answered_as = line.get("answered_as") or self.answered_as

    def _load(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._take(json.loads(line))
        if whole < len(data):
            # Else the next batch would be appended to half a line, and neither could be read.
            with self._path.open("r+b") as file:
                file.truncate(whole)
        if self._found and self._manifest.exists():
            self.setups = json.loads(self._manifest.read_text(encoding="utf-8"))["setups"]


def _named(**names: str) -> dict[str, str]:
    """Return the names that are known."""
    return {part: name for part, name in names.items() if name}


def set_aside(path: Path) -> None:
    """Rename kept answers, and what stands beside them, so that drawing begins anew and nothing is lost."""
    number = 1
    kept = (path, path.with_suffix(".json"))
    while any(one.with_stem(f"{one.stem}-{number}").exists() for one in kept):
        number += 1
    # The answers go first: what stands beside them is ignored without them, but answers without it would be
    # taken for drawn under any set-up.
    for one in kept:
        if one.exists():
            one.rename(one.with_stem(f"{one.stem}-{number}"))


class KeptVectors:
    """Embeds what is not on disk. A shard's columns: `key` (16 bytes of the text's sha256), `vector`."""

    def __init__(self, embedder: Embedder, folder: Path, *, shard: int = SHARD) -> None:
        self._embedder = embedder
        self._identity = embedder.identity
        self._folder = folder / identity_key(self._identity)
        self._shard = shard
        self._dtype = shard_type(self._identity.dimension)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[bytes, Vectors] = {}
        self._load()

    async def vectors(self, texts: Sequence[str], advance: Callable[[int], None]) -> Vectors:
        """Return unit rows (n, d) of the texts. `advance` is told how many more are there.

        Raises Conflict when the embedder is another by now: its vectors belong elsewhere.
        """
        missing = [text for text in dict.fromkeys(texts) if text_key(text) not in self._known]
        advance(len(texts) - len(missing))
        for start in range(0, len(missing), self._shard):
            await self._embed(missing[start : start + self._shard], advance)
        empty = np.empty((0, self._identity.dimension), dtype=np.float32)
        return np.stack([self._known[text_key(text)] for text in texts]) if texts else empty

    async def _embed(self, texts: Sequence[str], advance: Callable[[int], None]) -> None:
        made = np.empty(len(texts), dtype=self._dtype)
        for start in range(0, len(texts), CHUNK):
            chunk = texts[start : start + CHUNK]
            embedded = await self._embedder.embed(chunk)
            check_made_by(self._identity, embedded.made_by)
            made["vector"][start : start + len(chunk)] = embedded.vectors
            made["key"][start : start + len(chunk)] = [text_key(text) for text in chunk]
            advance(len(chunk))
        self._keep(made)

    def _keep(self, made: NDArray[np.void]) -> None:
        number = len(list(self._folder.glob("*.npy")))
        while (path := self._folder / f"{number:05d}.npy").exists():
            number += 1
        # Renamed when it is whole: a shard cut by a crash could not be read.
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, made, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        self._take(made)

    def _take(self, made: NDArray[np.void]) -> None:
        self._known.update(zip(made["key"].tolist(), made["vector"], strict=True))

    def _load(self) -> None:
        for path in sorted(self._folder.glob("*.npy")):
            made = np.load(path, allow_pickle=False)  # data only: loading it runs no code
            if made.dtype == self._dtype:
                self._take(made)


def shard_type(dimension: int) -> np.dtype[np.void]:
    """Return the columns of a shard."""
    # V, not S: numpy drops zero bytes from the end of an S16.
    return np.dtype([("key", "V16"), ("vector", "<f4", (dimension,))])


def text_key(text: str) -> bytes:
    """Return the key of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def identity_key(identity: EmbedderIdentity) -> str:
    """Return the folder of an embedder: everything that decides its vectors."""
    parts = asdict(identity)
    del parts["empty_answers"]  # which texts are embedded, not how
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


# What an evaluation rests on: files read, missing answers drawn, texts embedded; kept on the way.

SUPPLIED = (
    "The files hold supplied samples only, drawn at one sampling temperature; other temperatures need the "
    "model that drew them. Give files without samples, and an LLM by the settings."
)
NOT_ASKED = "No sampling temperatures were given; give --sampling-temperature at least twice."


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


@dataclass(frozen=True, slots=True)
class Components:
    """The components an evaluation works with. The language model is started only where answers are missing.

    version: of the service; now: the clock, for the results' date.
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
    shown: ShownProgress
    started: list[LanguageModel] = field(default_factory=list)
    kept: AnswerFile | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Both files with their answers: m of them per prompt, and all of them (`deep`) where there are more."""

    dev: list[StoredRow]
    test: list[StoredRow]
    deep: list[StoredRow]
    num_samples: int


def unused_name(name: str, taken: Mapping[str, object]) -> str:
    """Return the name, numbered where it is taken."""
    return name if name not in taken else f"{name} ({len(taken) + 1})"


def read(path: Path, limit: int | None) -> EvaluationFile:
    """Return the first `limit` rows of a file. Raises InvalidDevData, BodyTooLarge, which name it."""
    with path.open("rb") as file:
        try:
            return read_evaluation_file(file, limit)
        except (InvalidDevData, BodyTooLarge) as error:
            error.detail = f"{path}: {error.detail}"
            raise


async def answers(run: Run, dev: EvaluationFile, test: EvaluationFile) -> GatheredRows:
    """Return both files with their answers, drawing what is missing. Raises what drawing raises."""
    asked = run.plan.num_samples
    files = await _stored(run, "dev", dev), await _stored(run, "test", test)
    drawn_dev, drawn_test = (answered(rows, run.parts.embedders[0].empty_answers) for rows in files)
    sizes = [full_number([len(one.draws) for one in rows], asked) for rows in (drawn_dev, drawn_test)]
    m = asked or min(sizes)
    deep = (drawn_dev, drawn_test)[int(np.argmax(sizes))]
    kept = [_usable(run, rows, m) for rows in (drawn_dev, drawn_test)]
    return GatheredRows(kept[0], kept[1], deep, m)


def _usable(run: Run, rows: list[StoredRow], num_samples: int) -> list[StoredRow]:
    return usable_rows(rows, num_samples, rng(run.plan.seed, Stream.COPIES))[0]


async def _stored(run: Run, split: str, file: EvaluationFile) -> list[StoredRow]:
    if file.supplied:
        return supplied(file.rows, file.recorded)
    return await _draw_all(run, split, file, await _source(run, file), "answers")


async def _draw_all(
    run: Run, split: str, file: EvaluationFile, source: AnswerSource, what: str
) -> list[StoredRow]:
    run.shown.stage(f"{split}: {what}", len(file.rows))
    wanted = run.plan.num_samples or run.parts.serving.num_samples
    return await draw_all(split, file.rows, wanted, source, run.shown.advance)


async def _source(run: Run, file: EvaluationFile) -> AnswerSource:
    """Return how answers are drawn. Raises Conflict when those kept in the folder were drawn otherwise."""
    llm, serving = run.parts.llm, run.parts.serving
    if not run.started:
        await llm.start()
        run.started.append(llm)
        run.model = model_of(llm, serving, file.rows)
    run.kept = run.kept or _kept(run.plan)
    run.kept.agree(run.model, setups(llm, serving, file.rows))
    return AnswerSource(llm, serving, run.kept, run.parts.slots, run.model)


def _kept(plan: Plan) -> AnswerFile:
    path = plan.out / "answers.jsonl"
    if plan.anew:
        set_aside(path)
    return AnswerFile(path)


async def bench(run: Run, rows: GatheredRows, embedder: Embedder) -> Bench:
    """Return both files as seen by a started embedder."""
    dev = await _split(run, embedder, "dev: vectors", rows.dev, rows.num_samples)
    test = await _split(run, embedder, "test: vectors", rows.test, rows.num_samples)
    return Bench(dev, test, seed=run.plan.seed)


async def uncut(run: Run, rows: GatheredRows, embedder: Embedder) -> Material | None:
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
    run.shown.stage(f"{stage} ({embedder.identity.name})", len(embedded))
    kept = KeptVectors(embedder, run.plan.out / "vectors")
    vectors = outcome_vectors(texts, await kept.vectors(embedded, run.shown.advance))
    place = {text: i for i, text in enumerate(texts)}
    return assemble(rows, num_samples, vectors, place, embedder.identity.dimension)


async def sampling_temperature(
    run: Run, dev: EvaluationFile, test: EvaluationFile, num_samples: int, embedder: Embedder
) -> Experiment:
    """Return the sampling-temperature baseline, drawn at every temperature asked for."""
    if dev.supplied or test.supplied:
        return not_drawn(SUPPLIED)
    if len(run.plan.sampling_temperatures) < 2:
        return not_drawn(NOT_ASKED)
    at = partial(_drawn_at, run, embedder, num_samples)
    choice = choose({t: await at("dev", dev, t) for t in run.plan.sampling_temperatures})
    chosen = await at("test", test, choice.sampling_temperature)
    return await asyncio.to_thread(judge, choice, chosen, run.plan.seed)


async def _drawn_at(
    run: Run, embedder: Embedder, num_samples: int, split: str, file: EvaluationFile, temperature: float
) -> Split:
    source = (await _source(run, file)).at(temperature)
    what = f"at sampling temperature {temperature:g}"
    drawn = answered(await _draw_all(run, split, file, source, what), embedder.empty_answers)
    usable = _usable(run, drawn, num_samples)
    return await _split(run, embedder, f"{split} {what}: vectors", usable, num_samples)
