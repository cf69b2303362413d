"""Which methods a path answers to: Starlette's 405 names those of the first route alone."""

from fastapi import FastAPI
from starlette.routing import Match
from starlette.types import Scope

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def allowed_methods(app: FastAPI, scope: Scope) -> str:
    """Return the value of Allow for the path of a request."""

    def answers(method: str) -> bool:
        asked = {**scope, "method": method}
        return any(route.matches(asked)[0] is Match.FULL for route in app.router.routes)

    return ", ".join(filter(answers, METHODS))
