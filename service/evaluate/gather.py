"""What an evaluation rests on: files read, missing answers drawn, texts embedded; kept on the way."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from service.domain.calibrating.fitting import Stream, rng
from service.domain.calibrating.material import (
    Material,
    all_texts,
    answered,
    assemble,
    full_number,
    usable_rows,
)
from service.domain.devdata.reader import EvaluationFile, read_evaluation_file
from service.domain.errors import BodyTooLarge, InvalidDevData
from service.domain.jobs.store import StoredRow
from service.domain.outcomes import outcome_vectors, texts_to_embed
from service.domain.ports import Embedder, LanguageModel
from service.domain.serving import Serving
from service.domain.study.bench import Bench
from service.domain.study.experiments.meanings import EntailmentModel
from service.domain.study.experiments.sampling_temperature import choose, judge, not_drawn
from service.domain.study.model import Experiment
from service.domain.study.split import Split, make_split
from service.evaluate.answers import AnswerSource, draw_all, model_of, setups, supplied
from service.evaluate.kept import AnswerFile, KeptVectors, set_aside
from service.shown_progress import ShownProgress

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
    return await _draw(run, split, file, await _source(run, file), "answers")


async def _draw(
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
    drawn = answered(await _draw(run, split, file, source, what), embedder.empty_answers)
    usable = _usable(run, drawn, num_samples)
    return await _split(run, embedder, f"{split} {what}: vectors", usable, num_samples)
