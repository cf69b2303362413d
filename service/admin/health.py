"""GET /healthz, /readyz and /metrics, the root path with its links, and Swagger UI at /docs."""

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

from service import __version__
from service.admin.services import Services, ServicesDep
from service.errors import EigencalError, EmbedderUnavailable, LLMUnavailable, StoreUnavailable
from service.http.openapi import BEARER, KEY_CODES, responses
from service.http.pages import CLOSED, HTML, VARY, prefers, redirect

log = logging.getLogger(__name__)

router = APIRouter(tags=["health"])
CHECK_TIMEOUT_S = 5.0
# If several parts fail at once, the error names the first one, because each part waits for those before it.
ERRORS: dict[str, type[EigencalError]] = {
    "store": StoreUnavailable,
    "embedder": EmbedderUnavailable,
    "llm": LLMUnavailable,
}
PATHS = {
    "console": "/console/",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/healthz",
    "ready": "/readyz",
    "metrics": "/metrics",
    "score": "/score",
    "batch": "/score/batch",
    "calibrate": "/calibrate",
    "calibrations": "/calibrations",
    "jobs": "/jobs",
}


class Health(BaseModel):
    """The process is running."""

    status: Literal["ok"] = Field(description="ok: the process responds.")
    version: str = Field(description="Version of the service.")


class Ready(BaseModel):
    """All parts work."""

    status: Literal["ready"] = Field(description="ready: prompts can be scored.")
    parts: dict[str, Literal["ok"]] = Field(description="State by part: store, embedder and llm.")
    unreadable: list[str] = Field(
        [], description="Stored rows that cannot be read, by table and id. They are skipped."
    )


class Root(BaseModel):
    """The paths of the service."""

    name: str = Field(description="Name of the service.")
    version: str = Field(description="Version of the service.")
    links: dict[str, str] = Field(description="Paths by name.")


@router.head("/", include_in_schema=False, response_model=None)
@router.get(
    "/",
    summary="List the paths of the service",
    response_model=Root,
    responses={303: {"description": "To the console, if the request prefers HTML."}},
)
async def root(request: Request, response: Response) -> Root | Response:
    """Return the paths of the service. A browser is redirected to the console."""
    if prefers(request, HTML):
        return redirect(request, "console/")
    response.headers.update(VARY)
    return Root(name="Eigencal", version=__version__, links=PATHS)


# Some load balancers send HEAD; the server omits the body.
@router.head("/healthz", include_in_schema=False)
@router.get("/health", summary="Same as /healthz, for routers that expect this path")
@router.get("/healthz", summary="Is the process running?")
async def healthz() -> Health:
    """Return ok, regardless of the state of the LLM and the store."""
    return Health(status="ok", version=__version__)


@router.head("/readyz", include_in_schema=False, response_model=None)
@router.get(
    "/readyz",
    summary="Can prompts be scored?",
    response_model=None,
    responses={
        200: {"model": Ready},
        **responses("llm_unavailable", "embedder_unavailable", "store_unavailable"),
    },
)
async def readyz(app: ServicesDep) -> Ready:
    """Check the store, the embedder and the LLM. The error 503 names the part that does not work."""
    states = await states_of(app)
    broken = [name for name in ERRORS if states.get(name, "ok") != "ok"]
    if not broken:
        return Ready(status="ready", parts=dict.fromkeys(states, "ok"), unreadable=app.unreadable())
    parts = {name: "ok" if state == "ok" else "unavailable" for name, state in states.items()}
    described = ", ".join(f"{name} ({states[name]})" for name in broken)
    raise ERRORS[broken[0]](f"Not ready: {described}", parts=parts)


async def states_of(app: Services) -> dict[str, str]:
    """Return "ok" or a description of the failure, by component."""
    results = await asyncio.gather(*(_state(name, check) for name, check in app.checks.items()))
    return dict(zip(app.checks, results, strict=True))


async def _state(name: str, check: Callable[[], Awaitable[None]]) -> str:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check()
    except EigencalError as error:
        return error.detail
    except TimeoutError:
        return "no answer"
    except Exception:
        log.exception("the check of %s failed", name)
        return "failed"
    return "ok"


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **responses(*KEY_CODES)},
    openapi_extra=BEARER,
)
async def metrics(app: ServicesDep) -> Response:
    """Return all metrics in the Prometheus text format."""
    # The parts are checked as for /readyz, since a stored state could be stale.
    states, jobs = await states_of(app), dict[str, int]()
    with suppress(StoreUnavailable):
        jobs = {str(state): count for state, count in (await app.jobs.store.by_state()).items()}
    text = app.metrics.text({part: state == "ok" for part, state in states.items()}, jobs)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


# Swagger UI. Its files are served from here, for use without a network. URLs are relative, so that the page
# works behind a proxy that adds a path prefix.

GET = ["GET", "HEAD"]
FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
CARRIER = "fastapi_offline"  # the package with these files; none of its code runs
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def policy_with_scripts(page: str) -> str:
    """Return the security policy for a page that runs its own scripts, loads files here and calls the API."""
    hashes = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(page)]
    own = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
    return (
        f"{CLOSED}; script-src 'self' {own}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'"
    )


@router.api_route("/docs", methods=GET, include_in_schema=False)
async def docs() -> HTMLResponse:
    """Return the page of Swagger UI."""
    script, style, icon = (f"docs/{name}" for name in FILES)
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Eigencal",
        swagger_js_url=script,
        swagger_css_url=style,
        swagger_favicon_url=icon,
        swagger_ui_parameters={"validatorUrl": None},  # otherwise a public validator gets the document's URL
    )
    page.headers["Content-Security-Policy"] = policy_with_scripts(bytes(page.body).decode())
    return page


@router.api_route("/docs/{name}", methods=GET, include_in_schema=False)
async def docs_file(name: str) -> FileResponse:
    """Return a file of the page."""
    if name not in FILES:
        raise HTTPException(404)
    return FileResponse(carried() / name, headers={"Cache-Control": "max-age=3600"})


def carried() -> Path:
    """Return the folder of the files, without importing the package. Raises FileNotFoundError."""
    spec = find_spec(CARRIER)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {CARRIER} is not installed")
    return Path(spec.submodule_search_locations[0]) / "static"
