"""What the routes of gateways share: bodies that others define, conversations, headers of a score."""

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from service.errors import Unscorable
from service.llm.port import Message
from service.scoring.score import Score
from service.scoring.services import ScoringServices


class GatewayModel(BaseModel):
    """Base of bodies that a gateway defines: what it adds with its next release must not fail its calls."""

    model_config = ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )


def keep_and_head(app: ScoringServices, score: Score, owner: str) -> dict[str, str]:
    """Keep a score for `GET /scores/{id}`, and return its headers, with that id."""
    app.kept.keep(score.id, owner, score.json_text(["modes"]))
    return {**score.headers(), "X-Score-ID": score.id}


def why_no_probability(score: Score) -> str:
    """Return why a score has no P(correct), with what its warnings say of the calibration."""
    why = score.no_model or "its model gives no finite number"
    about = [
        w.message for w in score.warnings if w.code.startswith(("calibration_", "default_", "evidence_"))
    ]
    return " ".join([f"Nothing tells how likely an answer is right: {why}.", *about])


ROLES: tuple[str, ...] = get_args(Message.__annotations__["role"])


def conversation(rows: Sequence[Any]) -> tuple[Message, ...]:
    """Return turns of plain text, system, user and assistant. Raises Unscorable for anything else."""
    if not rows:
        raise Unscorable("no_messages", "There are no messages to draw answers to.")
    turns = tuple(map(_turn, rows))
    if turns[-1].role == "assistant":
        raise Unscorable(
            "last_turn", "The chat ends with an assistant's turn: none of the calibrated ones does."
        )
    return turns


def _turn(row: Any) -> Message:
    if not isinstance(row, dict):
        raise Unscorable("unreadable_request", "A message is no object.")
    role = row.get("role")
    if role not in ROLES:
        raise Unscorable("role", "A message is of another role than system, user and assistant.")
    if row.get("tool_calls") or row.get("function_call"):
        raise Unscorable("tool_call", "A message calls a tool.")
    text = _text(row.get("content"))
    if not text:
        raise Unscorable("no_text", "A message is empty.")
    return Message(role, text)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Unscorable("no_text", "A message has no text.")
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
    if len(parts) < len(content) or not all(isinstance(part.get("text"), str) for part in parts):
        raise Unscorable("no_text", "A message has parts that are no text, such as images.")
    # As vLLM joins them before its chat template.
    return "\n".join(part["text"] for part in parts)
