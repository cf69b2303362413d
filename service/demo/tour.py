"""`make run`: the service on this machine with its embedded LLM: scored, calibrated, scored again.

The service stays, in the background, with its process id and log in the data folder. A second run finds the
calibration of the first.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from service.demo.background import BackgroundService, DemoError
from service.demo.calibrate import calibrate, dev_data
from service.demo.http import Http
from service.demo.show import show_again, show_gain, show_score

CERTAIN = "What is the capital of France?"
UNKNOWABLE = "What is the name of my neighbour's dog?"


@dataclass(frozen=True, slots=True)
class Target:
    """What is started and how it is spoken to.

    key: bearer key, "" for none; recorded: whether the recorded answers are its own; setup: names what it
    draws answers with, so that another set-up is calibrated anew.
    """

    data_dir: Path
    host: str
    port: int
    key: str = ""
    recorded: bool = True
    setup: str = ""


def run(target: Target) -> None:
    """Start the service, score, calibrate, score again, say what to try next. Raises DemoError."""
    console = Console(highlight=False)
    service = BackgroundService(target.data_dir, target.host, target.port)
    if service.stop():
        console.print("Stopped the service of an earlier run.")
    with console.status("Starting the service (the first start converts the model's weights) ..."):
        service.start()
    try:
        walk(console, service.url, target)
    except httpx.TransportError as error:
        raise DemoError(f"The service no longer answers ({error}). {service.log_end()}") from None
    _say_what_next(console, service, target)


def walk(console: Console, url: str, target: Target) -> None:
    """Go through the demonstration with a service that runs. Raises DemoError, httpx.TransportError."""
    with Http(url, target.key) as http:
        raw = [_score(console, http, prompt, "none") for prompt in (CERTAIN, UNKNOWABLE)]
        for body, prompt in zip(raw, (CERTAIN, UNKNOWABLE), strict=True):
            show_score(console, prompt, body)
        drawn = "" if target.recorded else f"{target.setup} {raw[0]['model']}"
        setup = f"{drawn} {raw[0]['embedder']}"
        calibration_id = calibrate(console, http, dev_data(recorded=target.recorded, setup=setup))
        show_gain(console, http.get(f"/calibrations/{calibration_id}/report"))
        console.print("The whole report, with its plots, for your browser:")
        console.print(f"{url}/calibrations/{calibration_id}/report\n", soft_wrap=True)
        again = {p: _score(console, http, p, "active") for p in (CERTAIN, UNKNOWABLE)}
        show_again(console, again)
        _say_whose(console, again[CERTAIN], calibration_id)


def _score(console: Console, http: Http, prompt: str, calibration: str) -> dict[str, Any]:
    with console.status("Drawing answers ..."):
        body = {"prompt": prompt, "calibration": calibration, "return": ["samples", "modes"]}
        return http.post("/score", json=body)


def _say_whose(console: Console, score: dict[str, Any], calibration_id: str) -> None:
    """Say so when the calibration in force is another than the one shown above."""
    in_force = (score["calibration"] or {}).get("id")
    if in_force != calibration_id:
        console.print(f"Another calibration is in force: {in_force or 'none'}.")


def _say_what_next(console: Console, service: BackgroundService, target: Target) -> None:
    console.print(f"The service goes on at {service.url}, its API is at\n{service.url}/docs.", soft_wrap=True)
    key = " -H 'Authorization: Bearer KEY' \\\n   " if target.key else ""
    body = '{"prompt": "How many legs does a spider have?"}'
    line = f"Try:\n  curl -s {service.url}/score{key} -H 'Content-Type: application/json' \\\n    -d '{body}'"
    console.print(line, soft_wrap=True, markup=False)
    console.print(f"Its log: {service.log_file}\nStop it: make stop", soft_wrap=True)
