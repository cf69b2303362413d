"""GET /docs: the API described by Swagger UI, its files served from here, for places without a network.

Addresses are relative, so that the page works behind a proxy that serves it under a path of its own.
"""

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse

from service.api.middleware import policy_with_scripts

router = APIRouter(include_in_schema=False)
GET = ["GET", "HEAD"]
FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
CARRIER = "fastapi_offline"  # the package that carries them; none of its code is run


@router.api_route("/docs", methods=GET)
async def docs() -> HTMLResponse:
    """Return the page."""
    script, style, icon = (f"docs/{name}" for name in FILES)
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Eigencal",
        swagger_js_url=script,
        swagger_css_url=style,
        swagger_favicon_url=icon,
        swagger_ui_parameters={"validatorUrl": None},  # else the document's address goes to a public service
    )
    page.headers["Content-Security-Policy"] = policy_with_scripts(bytes(page.body).decode())
    return page


@router.api_route("/docs/{name}", methods=GET)
async def docs_file(name: str) -> FileResponse:
    """Return one of the page's files."""
    if name not in FILES:
        raise HTTPException(404)
    return FileResponse(carried() / name, headers={"Cache-Control": "max-age=3600"})


def carried() -> Path:
    """Return the folder of the files, found without an import. Raises FileNotFoundError."""
    spec = find_spec(CARRIER)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {CARRIER} is not installed")
    return Path(spec.submodule_search_locations[0]) / "static"
