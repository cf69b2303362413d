"""The reasoning of an LLM, which precedes its answer."""

import re

_THOUGHT = r"\w*[:_]?think(?:ing)?|reasoning|thoughts?"
# Begin and end marks of reasoning, by model.
_MARKS = (
    # With attributes, or cut before the end of the mark.
    (rf"<(?:{_THOUGHT})(?:\s[^>]*)?(?:>|\Z)", rf"</(?:{_THOUGHT})\s*>"),
    (r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    ("◁think▷", "◁/think▷"),  # Kimi
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    (r"<\|channel>thought|<unused94>thought", r"<channel\|>|<unused95>"),  # Gemma
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|thinking\|>", r"<\|/thinking\|>"),
    # The harmony format of gpt-oss.
    (r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final.*?<\|message\|>"),
)
_THOUGHT_BEGINS, _THOUGHT_ENDS = (
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\A[\s\u200b\u2060\ufeff]*(?:{'|'.join(begin for begin, _ in _MARKS)})",
        "|".join(end for _, end in _MARKS),
    )
)
# Marks around the answer after the reasoning.
_AROUND = re.compile(
    r"\A\s*<\|(?:START_(?:RESPONSE|TEXT)|begin_of_solution)\|>"
    r"|<\|(?:END_RESPONSE|END_TEXT|end_of_solution|return|end)\|>\s*\Z"
)
# Tool calls in the text, from servers that do not parse them. A text of only tool calls is not an answer.
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)


def answer_in(output: str) -> str:
    """Return an LLM's output without leading reasoning.

    It is "" if a block is not closed, or only tool calls remain. Some chat templates open the block in the
    prompt, so a closing tag without an opening one also ends it.
    """
    # Servers that cut a text between two tokens may send half a surrogate pair.
    text = output.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if end := _THOUGHT_ENDS.search(text):  # the first one: an answer may itself speak of the tag
        text = text[end.end() :]
    while _THOUGHT_BEGINS.match(text):
        end = _THOUGHT_ENDS.search(text)
        text = text[end.end() :] if end else ""
    text = _AROUND.sub("", text)
    return text if _CALL.sub("", text).strip() else ""
