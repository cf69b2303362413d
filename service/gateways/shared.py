"""Shared by the gateway routes: the base of request bodies, conversations and headers of a score."""

from collections.abc import Sequence
from typing import Any, get_args

from fastapi import Request
from pydantic import BaseModel, ConfigDict

from service.api.auth import owner_of
from service.errors import Unscorable
from service.llm.port import Message
from service.scoring.score import Score
from service.scoring.service import ScoringService


class GatewayModel(BaseModel):
    """Base of bodies that a gateway defines. Fields added by later releases of the gateway are ignored."""

    model_config = ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )


def save(app: ScoringService, request: Request, score: Score) -> dict[str, str]:
    """Store a score for `GET /scores/{id}`, and return its headers, including the id."""
    app.save(score, owner_of(request), ["modes"])
    return {**score.headers(), "X-Score-ID": score.id}


def why_no_probability(score: Score) -> str:
    """Return why a score has no P(correct), followed by its warnings about the calibration."""
    why = score.unavailable_reason or "the correctness model gives no finite number"
    about = [
        w.message for w in score.warnings if w.code.startswith(("calibration_", "default_", "evidence_"))
    ]
    return " ".join([f"The probability that an answer is right is unknown: {why}.", *about])


ROLES: tuple[str, ...] = get_args(Message.__annotations__["role"])


def conversation(rows: Sequence[Any]) -> tuple[Message, ...]:
    """Return the turns of plain text by system, user and assistant. Raises Unscorable for other turns."""
    if not rows:
        raise Unscorable("no_messages", "There are no messages to draw answers to.")
    turns = tuple(map(_turn, rows))
    if turns[-1].role == "assistant":
        raise Unscorable(
            "last_turn", "The chat ends with an assistant's turn, unlike the chats of calibrations."
        )
    return turns


def _turn(row: Any) -> Message:
    if not isinstance(row, dict):
        raise Unscorable("unreadable_request", "A message is not an object.")
    role = row.get("role")
    if role not in ROLES:
        raise Unscorable("role", "A message has a role other than system, user and assistant.")
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
        raise Unscorable("no_text", "A message has parts that are not text, such as images.")
    # vLLM joins parts in the same way before its chat template.
    return "\n".join(part["text"] for part in parts)
