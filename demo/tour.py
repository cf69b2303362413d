"""`make run`: start an LLM server and the service, wait for a first calibration, score prompts.

Both keep running in the background, with their process ids and logs in the data folder. A second run finds
the calibration of the first.
"""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from demo.data import PROMPT_TEMPLATE
from service.llm.weights import MINILM, SMOLLM2

START_TIMEOUT_S = 600.0  # the first start converts the weights of the LLM
STOP_TIMEOUT_S = 35.0  # running requests of the service get 30 s
TIMEOUT_S = 300.0  # per call
JOB_TIMEOUT_S = 60.0  # until the job has started
POLL_S = 0.2
LLM_PORT = 8001  # if it is free
# Values for settings that are not set: the smaller embedder, which starts faster, and few answers per chat.
DEFAULTS = {"EIGENCAL_EMBEDDER": MINILM, "EIGENCAL_CHAT_NUM_SAMPLES": "3"}
# The same for the LLM server of the demonstration. It answers one call at a time.
LLM_DEFAULTS = {
    "EIGENCAL_LLM_MODEL": SMOLLM2,
    "EIGENCAL_LLM_API": "completions",
    "EIGENCAL_LLM_SLOTS": "1",
    "EIGENCAL_NUM_SAMPLES": "10",
    "EIGENCAL_PROMPT_TEMPLATE": PROMPT_TEMPLATE,
    "EIGENCAL_MAX_TOKENS": "64",
    "EIGENCAL_STOP": r'["\n"]',
    "EIGENCAL_TARGET_ERROR": "0.5",  # so small a model allows no promise of a much lower one
}
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # address to reach such a service locally
EASY, UNKNOWN = "What is the capital of France?", "What is the name of my dog?"


class DemoError(Exception):
    """The demonstration cannot go on; the message says why."""


def set_defaults() -> bool:
    """Set the settings that the environment leaves open. Return False if it names an LLM server."""
    with_llm = not os.environ.get("EIGENCAL_LLM_URL")
    for name, value in (DEFAULTS | (LLM_DEFAULTS if with_llm else {})).items():
        os.environ.setdefault(name, value)
    return with_llm


class BackgroundProcess:
    """A process of its own. A file stores its id, so that a later call finds it.

    `command`: what `python -m` runs. The files are `name`.pid and `name`.log in the folder.
    """

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._pid_file = folder / f"{name}.pid"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, **environment: str) -> None:
        """Start the process detached from this one, with further arguments and variables."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *self._command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | environment,
                start_new_session=True,
            )
        self._pid_file.write_text(str(self._process.pid))

    @property
    def has_ended(self) -> bool:
        """Return True if the process that was started here has ended."""
        # `poll` also reaps it. Until then, it would count as running.
        return self._process is not None and self._process.poll() is not None

    def end_of_log(self) -> str:
        """Return the last lines of its log, for an error message."""
        last = self.log_file.read_text(errors="replace").strip().splitlines()[-5:]
        return "\n  ".join(
            [f"The process `{self.name}` did not start. Its log, {self.log_file}, ends:", *last]
        )

    def stop(self) -> bool:
        """Stop the process, also of an earlier call, by force after a timeout. Return True if it ran."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return False
        was = self._runs(pid)
        if was:
            with suppress(ProcessLookupError):  # the process has already ended
                os.kill(pid, signal.SIGTERM)
                if not wait_until(lambda: not self._runs(pid), STOP_TIMEOUT_S):
                    os.kill(pid, signal.SIGKILL)
        self._pid_file.unlink(missing_ok=True)
        return was

    def _runs(self, pid: int) -> bool:
        """Return True if this process runs. The id may belong to another program after a restart."""
        if self._process is not None:
            return not self.has_ended
        if pid <= 0:  # would signal a process group
            return False
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError, OverflowError):
            return False
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # the process has just ended, or there is no /proc: then a live process is enough
            return not Path("/proc/self").exists()
        return "\0".join(["", "-m", *self._command, ""]).encode() in command


class Demo:
    """The service and an LLM server, which are started together."""

    def __init__(self, data_dir: Path, host: str, port: int) -> None:
        self._host, self._port = ANY_ADDRESS.get(host, host), port
        self.url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}"
        self._data_dir = data_dir
        self.service = BackgroundProcess(data_dir, "service", "service")
        self.llm = BackgroundProcess(data_dir, "llm", "demo", "serve")

    def stop(self) -> bool:
        """Stop both processes, also of an earlier call. Return True if one ran."""
        # The service first, because its running requests may need the LLM.
        return any([self.service.stop(), self.llm.stop()])

    def start(self, *, with_llm: bool) -> None:
        """Start the service and its LLM server. Raises DemoError if the service does not become ready.

        with_llm: False to start the service alone, with the LLM server of its settings.
        """
        if _is_taken(self._host, self._port):
            taken = f"Another program uses port {self._port}. Choose another port"
            raise DemoError(f"{taken}: EIGENCAL_PORT=8123 make run")
        # Both at once, because each loads a model.
        if with_llm:
            is_taken = self._port == LLM_PORT or _is_taken("127.0.0.1", LLM_PORT)
            port = str(_free_port() if is_taken else LLM_PORT)
            self.llm.start("--port", port, "--data-dir", str(self._data_dir))
            self.service.start(EIGENCAL_LLM_URL=f"http://127.0.0.1:{port}/v1")
        else:
            self.service.start()
        both = (self.llm, self.service)
        wait_until(lambda: any(process.has_ended for process in both) or self._is_ready(), START_TIMEOUT_S)
        failed = next((process for process in both if process.has_ended), None)
        if failed or not self._is_ready():
            self.stop()
            raise DemoError((failed or self.service).end_of_log())

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=10, trust_env=False).is_success
        except httpx2.TransportError:
            return False


def _is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(5)
        return probe.connect_ex((host, port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition. Return True if it was met in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(POLL_S)
    return False


def run(demo: Demo, *, with_llm: bool, key: str, to_know: bool) -> None:
    """Start both processes, score, wait for the calibration, score again, print the next steps.

    with_llm: see `Demo.start`. key: bearer key, "" for none. to_know: True if the service gets to know its
    LLM. Raises DemoError.
    """
    if demo.stop():
        print("Stopped what an earlier run had left.")
    print("Starting the service and its LLM (the first start converts the LLM's weights) ...", flush=True)
    demo.start(with_llm=with_llm)
    try:
        walk(demo.url, key, to_know=to_know)
    except httpx2.TransportError as error:
        raise DemoError(f"The service no longer answers ({error}): {demo.service.log_file}") from None
    header = " -H 'Authorization: Bearer KEY'" if key else ""
    body = '{"prompt": "How many legs does a spider have?"}'
    print(f"Ask, judge and calibrate in your browser: {demo.url}/console/")
    print(f"The service keeps running at {demo.url}; its API: {demo.url}/docs. Try:")
    print(f"  curl -s {demo.url}/score{header} -H 'Content-Type: application/json' -d '{body}'")
    print(f"Its log: {demo.service.log_file}\nStop it: make stop")


def walk(url: str, key: str = "", *, to_know: bool = True) -> None:
    """Run the demonstration on a running service. Raises DemoError, httpx2.TransportError."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # trust_env=False: a proxy from the environment does not lead to this machine.
    with httpx2.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as http:
        easy = ask(http, EASY)
        if easy["calibrated"]:
            print("A calibration from an earlier run is active.")
        elif to_know:
            show(EASY, easy)
            calibration_id = get_to_know(http)
            print(f"Its report: {url}/calibrations/{calibration_id}/report")
            easy = ask(http, EASY)
        show(EASY, easy)
        show(UNKNOWN, ask(http, UNKNOWN))


def call(http: httpx2.Client, method: str, path: str, **sent: Any) -> Any:
    """Send a request with the arguments of httpx2 and return its JSON. Raises DemoError for a refusal."""
    response = http.request(method, path, **sent)
    if response.is_success:
        return response.json()
    remedy = ""
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        # The service requires a key because an earlier run created keys.
        remedy = " Set EIGENCAL_ADMIN_KEY to a secret of yours, which allows everything, and run this again."
    raise DemoError(f"The service answered {response.status_code}: {response.text[:400]}{remedy}")


def get_to_know(http: httpx2.Client) -> str:
    """Wait until the service knows its LLM; return the calibration's id. Raises DemoError."""
    print("The service is asking its LLM 240 questions for a first calibration. This takes minutes.")
    print("(Ctrl-C stops waiting; the job continues.)", flush=True)
    began, jobs = time.monotonic(), _jobs(http)
    over = {job["id"] for job in jobs if not _is_open(job)}  # jobs of earlier runs
    while not (ours := [job for job in jobs if job["id"] not in over or _is_open(job)]):
        if time.monotonic() - began > JOB_TIMEOUT_S:
            raise DemoError("The job with the bundled questions has not started. See the service's log.")
        time.sleep(POLL_S)
        jobs = _jobs(http)
    job = ours[-1]  # the oldest asks prompts
    while _is_open(job):
        if sys.stdout.isatty() and job["stage"]:
            print(f"\r  {job['stage']}: {job['done']} of {job['total']}   ", end="", flush=True)
        time.sleep(POLL_S)
        job = call(http, "GET", f"/jobs/{job['id']}")
    if job["state"] != "succeeded":
        why = (job["error"] or {}).get("detail", "no reason given")
        raise DemoError(f"Getting to know the LLM: {job['state']}. {why}")
    print(f"\n{job['decision']}")
    return str(job["calibration_id"])


def _jobs(http: httpx2.Client) -> list[dict[str, Any]]:
    """Return all jobs, newest first. Raises DemoError."""
    return list(call(http, "GET", "/jobs"))


def _is_open(job: dict[str, Any]) -> bool:
    return job["state"] in ("queued", "running")


def ask(http: httpx2.Client, prompt: str) -> dict[str, Any]:
    """Score a prompt and return its score. Raises DemoError."""
    score: dict[str, Any] = call(http, "POST", "/score", json={"prompt": prompt})
    return score


def show(prompt: str, score: dict[str, Any]) -> None:
    """Print a prompt and its score."""
    print(f"\n{prompt} {textwrap.shorten(score['answer'], 40)}")
    figures = {name: score[name] for name in ("probability_correct", "lambda_max", "self_check")}
    print("  " + ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if value is not None))
    if decision := score["decision"]:
        print(f"  Decision: {decision['action']}. {decision['reason']}")
    else:
        print("  No decision yet. " + " ".join(warning["message"] for warning in score["warnings"]))
    print(flush=True)
