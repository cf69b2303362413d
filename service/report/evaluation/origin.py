"""Where an evaluation comes from, in words: files, model, embedders, date, version."""

from collections.abc import Iterator

from service.domain.study.provenance import AnswersPart, FilePart, Provenance
from service.report.words import fingerprint_rows, when

SPLITS = {"dev": "Dev", "test": "Test"}
ANSWERS = {"file": "answers as the file has them", "model": "answers drawn by the model below"}
KINDS = {"prompt": "prompts", "messages": "conversations"}
UNKNOWN = "not told: the answers came with the files"


def origin_rows(provenance: Provenance) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of everything that is known."""
    for split, name in SPLITS.items():
        yield f"{name} file", _file(provenance["files"][split])
    yield from _answers(provenance["answers"])
    for one in provenance["embedders"]:
        told = f"revision {one['revision']}, d = {one['dimension']}, {one['precision']}"
        yield "Embedder", f"{one['name']} ({told})"
    yield "Null eigenvalue eps", f"{provenance['eps']:g}"
    yield "Made", f"{when(provenance['created_at'])} by Eigencal {provenance['version']}".rstrip()


def _file(file: FilePart) -> str:
    name = file["name"] or "an upload"
    known = [name, f"SHA-256 {file['sha256']}"] if file["sha256"] else [name]
    return ", ".join([*known, ANSWERS[file["answers_from"]]])


def _answers(answers: AnswersPart | None) -> Iterator[tuple[str, str]]:
    if answers is None:
        yield "Language model", UNKNOWN
        return
    model, told = answers["model"] or answers["answered_as"], answers["answered_as"]
    yield "Language model", f"{model}, which answered as {told}" if told not in ("", model) else model
    for kind, setup in answers["setups"].items():
        for name, value in fingerprint_rows(setup):
            yield f"{name} ({KINDS[kind]})" if len(answers["setups"]) > 1 else name, value
