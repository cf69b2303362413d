"""Withholding answers by their decision.

If the operator enforces abstaining, only judged text is sent. Otherwise a caller's prompt could have the
answer written into the reasoning, or next to a tool call, before a text that is sure to pass.
"""

from service.proxy.chat_score import Uncertainty


def is_abstained(uncertainty: Uncertainty) -> bool:
    """Return True if the decision on the answer is to abstain."""
    decision = uncertainty.score.decision if uncertainty.score else None
    return decision is not None and decision.action == "abstain"


def is_judged(uncertainty: Uncertainty) -> bool:
    """Return True if a calibration's model or a refusal decided, or there is no text to be wrong."""
    if uncertainty.warning is not None and uncertainty.warning.code == "no_text":
        return True
    score = uncertainty.score
    if score is None or score.decision is None:
        return False
    return score.unavailable_reason is None or score.is_refused
