"""Small rows, calibrations and reports for tests of jobs and stores."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from service.calibration.calibration import Calibration, Fingerprint
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations, insert_calibration
from service.ids import new_id
from service.llm.prompt import Message
from service.spectral.spectrum import DepolarizedMap

NASTY = 'quote " newline \n nul \x00 emoji \U0001f600 \\ end'
_seconds = count()


class Active:
    """Calibrations that are all active, each for its set-up."""

    def __init__(self, *calibrations: Calibration) -> None:
        self.calibrations = list(calibrations)

    def active(self, fingerprint_key: str) -> Calibration | None:
        return next(
            (
                calibration_
                for calibration_ in self.calibrations
                if calibration_.fingerprint.key() == fingerprint_key
            ),
            None,
        )

    def any_active(self) -> list[Calibration]:
        return self.calibrations

    def num_activations(self) -> int:
        return len(self.calibrations)

    async def get(self, calibration_id: str) -> Calibration | None:
        return next(
            (calibration_ for calibration_ in self.calibrations if calibration_.id == calibration_id), None
        )


def fingerprint(model: str = "m", *, source: str = "service") -> Fingerprint:
    return Fingerprint(
        source, "e", "1", "float32", 64, model=model, sampling={"temperature": 0.5, "stop": []}
    )


def calibration(model: str = "m", *, temperature: float = 2.0, source: str = "service") -> Calibration:
    parameters = {m: DepolarizedMap(temperature + m / 10, 0.5) for m in range(2, 6)}
    created = datetime(2026, 11, 1, 12, tzinfo=UTC) + timedelta(seconds=next(_seconds))
    return Calibration(
        new_id("cal"), "depolarized", fingerprint(model, source=source), 5, parameters, created, name=NASTY
    )


def rows(
    number: int = 40,
    *,
    samples: tuple[str, ...] | None = None,
    logprobs: tuple[float, ...] | None = None,
) -> Iterator[DevRow]:
    for i in range(number):
        if i % 2:
            row = DevRow(i + 1, f"r{i}", (f"reference {i}", NASTY), prompt=f"{NASTY} {i}")
        else:
            turns = (Message("system", "Be brief."), Message("user", f"question {i}"))
            row = DevRow(i + 1, None, ("a",), messages=turns, answer="a", correct=i % 4 == 0)
        yield replace(row, samples=samples, logprobs=logprobs)


async def add(
    calibrations: SqlCalibrations, made: Calibration, report: dict[str, Any], *, num_rows: int = 0
) -> None:
    """Store a calibration that was not made by a job."""
    async with calibrations._database.write() as connection:
        await insert_calibration(connection, made, report, None, num_rows)
