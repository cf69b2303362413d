"""What the Python client adds to a bare httpx call of the same request to the same service.

In turn, on kept connections: POST /score by httpx with its body as JSON and its answer read as JSON, and
`score` of the client; waiting and awaited. The service has a fake LLM and a fake embedder, so that its own
share is small.
"""

import argparse
import asyncio

import httpx

from benchmarks.alternating import alternate, told
from benchmarks.processes import PYTHON, free_port, running, wait_for
from eigencal import AsyncClient, Client

PROMPT = "How many legs does a spider have?"
BODY = {"prompt": PROMPT, "num_samples": 10}


async def compare(url: str, seconds: float) -> None:
    """Print what each client adds."""
    async with httpx.AsyncClient(timeout=60) as http, AsyncClient(url, timeout_s=60) as client:
        with httpx.Client(timeout=60) as waiting_http, Client(url, timeout_s=60) as waiting_client:

            async def bare(_: int) -> None:
                (await http.post(f"{url}/score", json=BODY)).raise_for_status().json()

            async def ours(_: int) -> None:
                await client.score(PROMPT, num_samples=10)

            async def waiting_bare(_: int) -> None:
                waiting_http.post(f"{url}/score", json=BODY).raise_for_status().json()  # noqa: ASYNC212

            async def waiting_ours(_: int) -> None:
                waiting_client.score(PROMPT, num_samples=10)

            calls = {"bare": bare, "ours": ours, "waiting bare": waiting_bare, "waiting ours": waiting_ours}
            found = await alternate(calls, callers=1, seconds=seconds)
    print(told(found))
    for name, base in (("ours", "bare"), ("waiting ours", "waiting bare")):
        added_ms = found.p50(name) - found.p50(base)
        print(f"{name}: {added_ms:+.3f} ms to {found.p50(base):.3f}, ratio {found.ratio(name, base)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    port = free_port()
    with running([PYTHON, "-m", "benchmarks.fake_service", str(port)]) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/healthz", process, 120)
        asyncio.run(compare(url, options.seconds))


if __name__ == "__main__":
    main()
