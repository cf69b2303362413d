"""JSON as the standard has it, with errors that say what is wrong."""

import json
from typing import Any, NoReturn


class _JsonError(ValueError):
    pass


def parse_json(text: str) -> object:
    """Parse strict JSON: no NaN or Infinity, no key twice, no nesting without end. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise _JsonError(f"is no valid JSON: {error.msg} (column {error.colno})") from error
    except _JsonError:
        raise
    except ValueError as error:  # the interpreter's bound on the digits of an integer
        raise _JsonError("holds a number of too many digits") from error
    except RecursionError as error:
        raise _JsonError("is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise _JsonError(f"holds {name}, which is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _JsonError("gives a key twice")
    return found
