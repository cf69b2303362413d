"""Calls that score."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from eigencal._calls.call import Call, path, reader, without_none
from eigencal._errors import InvalidSetup
from eigencal._models.kept import KeptScore
from eigencal._models.requests import ScoreOptions
from eigencal._models.score import Score

_SCORE = reader(Score)
_KEPT = reader(KeptScore)
# An option for all items is none for an item with one of these: the service would refuse the two together.
_EXCLUDED_BY = defaultdict(
    frozenset[str],
    {
        "num_samples": frozenset({"samples", "effort"}),
        "effort": frozenset({"samples", "num_samples"}),
        "sampling": frozenset({"samples"}),
        "model": frozenset({"samples"}),
        "deadline_ms": frozenset({"samples"}),
    },
)


def score_body(prompt: str | None, options: ScoreOptions) -> dict[str, Any]:
    """Return the body of POST /score. Raises InvalidSetup where there is nothing to score."""
    body = item_of({"prompt": prompt, **options})
    if not body.keys() & {"prompt", "messages", "samples"}:
        raise InvalidSetup("There is nothing to score: give a prompt, `messages` or `samples`.")
    return body


def item_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score request as it is sent: `return_`, which Python needs, is `return` there."""
    sent = without_none(fields)
    if "return_" in sent:
        sent["return"] = sent.pop("return_")
    return sent


def batch_item(item: object, options: ScoreOptions) -> object:
    """Return an item of a batch as it is sent: with the options that it leaves open."""
    if isinstance(item, str):
        item = {"prompt": item}
    if not isinstance(item, Mapping):
        return item  # the service says in its line what is wrong with it
    common = {name: value for name, value in options.items() if not _EXCLUDED_BY[name] & item.keys()}
    return item_of({**common, **item})


def score(prompt: str | None, options: ScoreOptions) -> Call[Score]:
    """POST /score."""
    return Call("POST", "/score", _SCORE, score_body(prompt, options))


def get_score(score_id: str) -> Call[KeptScore]:
    """GET /scores/{score_id}."""
    return Call("GET", path("/scores/{id}", id=score_id), _KEPT)
