"""A client that is used after a fork: no two processes read from one connection."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import eigencal
from tests.support.openai_server import Exchange, OpenAIServer, serving_in_thread
from tests.support.scripted_batches import SCORE

# A process without threads of its own forks; each tells by which of the server's connections it was answered.
PROGRAM = """
import asyncio, json, os, sys
import httpx
from eigencal import AsyncClient, Client, EigencalError
kind, own = sys.argv[2:]
inner = {"AsyncClient": httpx.AsyncClient, "Client": httpx.Client}[kind]
client = {"AsyncClient": AsyncClient, "Client": Client}[kind](
    sys.argv[1], retries=0, **({"http_client": inner()} if own == "handed in" else {})
)
def port():
    async def awaited():
        return (await client.score("What?")).answer
    try:
        return asyncio.run(awaited()) if kind == "AsyncClient" else client.score("What?").answer
    except EigencalError as error:
        return error.code
before = port()
if os.fork() == 0:
    print(json.dumps([before, port()]), flush=True)
    os._exit(0)
os.wait()
if kind == "Client":
    print(json.dumps([before, port()]))
"""


async def by_port(exchange: Exchange) -> None:
    await exchange.send(200, SCORE | {"answer": str(exchange.writer.get_extra_info("peername")[1])})


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    environment = {"PYTHONPATH": str(Path(eigencal.__file__).parents[1])}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True)


def told(kind: str, own: str) -> list[list[str]]:
    server = OpenAIServer(default=by_port)
    with serving_in_thread(server):
        run = python(PROGRAM, server.url.removesuffix("/v1"), kind, own)
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_the_new_process_has_a_connection_of_its_own(kind: str) -> None:
    child, *parent = told(kind, "own")
    assert child[0].isdecimal() and child[1].isdecimal() and child[0] != child[1]
    assert all(before == after == child[0] for before, after in parent), "the first goes on with its own"


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_what_was_handed_in_is_refused_there(kind: str) -> None:
    child, *parent = told(kind, "handed in")
    assert child[1] == "invalid_setup"
    assert all(before == after for before, after in parent)
