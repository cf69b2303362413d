"""The command `evaluate`: files in, answers and vectors kept on the way, report and figures out."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from service.calibration.files import EvaluationFile
from service.embedding.port import EmbedderIdentity
from service.evaluation.experiments import (
    FileFacts,
    Inputs,
    Likelihoods,
    Meanings,
    OnExperiment,
    by_entailment,
    drawn,
    make_results,
    recorded,
)
from service.evaluation.gather import (
    AnswerFile,
    Components,
    GatheredRows,
    Plan,
    Run,
    answers,
    bench,
    make_folder,
    read,
    sampling_temperature,
    uncut,
    unused_name,
    write_results,
)
from service.llm.weights import sha256_of
from service.progress import ShownProgress
from service.report.bench import Bench, Split
from service.report.model import DataFile, Experiment, Provenance, Results, provenance
from service.report.model import DrawnAnswers as AnswersPart


def evaluate(plan: Plan, parts: Components) -> Results:
    """Run the evaluation and write its files; a second run goes on where it stopped.

    Raises EigencalError, and OutFolderError before anything is read, drawn or embedded.
    """
    make_folder(plan.out)
    with ShownProgress() as shown:
        results = asyncio.run(_evaluate(Run(plan, parts, shown)))
        write_results(plan.out, results)
    return results


async def _evaluate(run: Run) -> Results:
    dev, test = read(run.plan.dev, run.plan.limit), read(run.plan.test, run.plan.limit)
    if not (dev.supplied and test.supplied):
        await _try_embedders(run)
    try:
        rows = await answers(run, dev, test)
        benches: dict[str, Bench] = {}
        identities: list[EmbedderIdentity] = []  # asked while it runs: some know theirs only then
        for embedder in run.parts.embedders:
            await embedder.start()
            try:
                one = await bench(run, rows, embedder)
                identities.append(embedder.identity)
                benches[unused_name(embedder.identity.name, benches)] = one
                # Of the first embedder alone, the one that all experiments use.
                if len(benches) == 1:
                    one.deep = await uncut(run, rows, embedder) or one.deep
                    baseline = await sampling_temperature(run, dev, test, rows.num_samples, embedder)
            finally:
                await embedder.stop()
    finally:
        for llm in run.started:
            await llm.stop()
    origin = await asyncio.to_thread(_whence, run, dev, test, identities)
    return await asyncio.to_thread(_results, run, dev, test, rows, benches, baseline, origin)


def _whence(
    run: Run, dev: EvaluationFile, test: EvaluationFile, embedders: Sequence[EmbedderIdentity]
) -> Provenance:
    """Return where the results come from, once answers and vectors are there."""
    return provenance(
        {"dev": _file(run.plan.dev, dev), "test": _file(run.plan.test, test)},
        _answers(run.kept) if run.kept else None,
        embedders,
        version=run.parts.version,
        now=run.parts.now(),
    )


def _file(path: Path, file: EvaluationFile) -> DataFile:
    return DataFile(file.supplied, path.name, sha256_of(path))


def _answers(kept: AnswerFile) -> AnswersPart:
    return {"model": kept.model, "answered_as": kept.answered_as, "setups": kept.setups}


async def _try_embedders(run: Run) -> None:
    """Load each embedder once: one that is missing must not be noticed after an hour of drawing answers."""
    for embedder in run.parts.embedders:
        try:
            await embedder.start()
            await embedder.check()
        finally:
            await embedder.stop()


def _results(
    run: Run,
    dev: EvaluationFile,
    test: EvaluationFile,
    rows: GatheredRows,
    benches: Mapping[str, Bench],
    sampling_temperature: Experiment,
    provenance: Provenance,
) -> Results:
    first = next(iter(benches.values())).test
    inputs = Inputs(benches, _meanings(run, first), _likelihoods(test, first), sampling_temperature)
    facts = FileFacts(dev.total, _depth(dev, rows)), FileFacts(test.total, _depth(test, rows))
    return make_results(inputs, facts, provenance, _experiments_shown(run.shown))


def _depth(file: EvaluationFile, rows: GatheredRows) -> int:
    return max((len(row.samples) for row in file.rows if row.samples is not None), default=rows.num_samples)


def _meanings(run: Run, test: Split) -> Meanings | None:
    if run.parts.entailment is None:
        return None
    run.shown.stage("entailment", len(test))
    return by_entailment(test, run.parts.entailment, run.shown.advance)


def _likelihoods(file: EvaluationFile, test: Split) -> Likelihoods | None:
    return recorded(test, file.recorded) if file.supplied else drawn(test)


def _experiments_shown(shown: ShownProgress) -> OnExperiment:
    before: list[int] = []

    def tell(done: int, total: int, what: str) -> None:
        if not before:
            shown.stage("experiments", total)
            before.append(0)
        shown.advance(done - before[0], what)
        before[0] = done

    return tell
