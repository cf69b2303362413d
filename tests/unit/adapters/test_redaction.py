"""What an LLM server says about a prompt never holds the prompt, whatever its length."""

import asyncio
import html
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import LLMError
from service.llm.openai_server import HttpLanguageModel
from service.llm.port import GenerationRequest, Message, Sampling
from service.llm.wire import ECHO, MARK, MAX_MESSAGE, redact, told
from tests.support.openai_server import MODEL, OpenAIServer, status

LIMIT = "This model's maximum context length is 4096 tokens. However, you requested 300000 tokens."
SECRET = 'The "red" fox\nhid 7 kegs of brandy behind the old mill, \\ and told nobody but Zoë 🦊.'


@pytest.mark.parametrize("secret", ["x", "too", SECRET, SECRET * 1000])
def test_a_message_without_an_echo_is_told_as_it_is(secret: str) -> None:
    assert told(LIMIT, [secret]) == LIMIT


@pytest.mark.parametrize(
    "echo",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps(SECRET)),
        repr(SECRET),
        ascii(SECRET),
        html.escape(SECRET),
    ],
    ids=["plain", "json", "json unicode", "json twice", "repr", "ascii", "html"],
)
def test_an_echo_is_replaced_in_its_place(echo: str) -> None:
    said = redact(f"bad input {echo} (at most 7)", [SECRET])
    assert re.sub(r"""["'\\]""", "", said) == f"bad input {MARK} (at most 7)"


@pytest.mark.parametrize("start", range(0, 40, 3))
@pytest.mark.parametrize("around", [0, 1000, 100_000])
def test_a_part_of_a_prompt_is_an_echo_wherever_it_begins(start: int, around: int) -> None:
    secret = "lorem ipsum " * (around // 12) + SECRET + "dolor sit " * (around // 10)
    said = redact(f"near:{SECRET[start : start + ECHO]}… too long", [secret])
    assert said == f"near:{MARK}… too long"


def test_an_echo_that_is_cut_off_with_the_message() -> None:
    said = told("x" * 250 + " " + SECRET, [SECRET])
    assert said == "x" * 250 + f" {MARK}"
    assert told("x" * 1990 + SECRET, [SECRET]) == "x" * 299 + "…"


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("art", "[prompt] is no part of it; part, art_2"),
        (" art\n", "[prompt] is no part of it; part, art_2"),
        ("is no part", "art [prompt] of it; part, art_2"),
        ("Art", "art is no part of it; part, art_2"),
        ("", "art is no part of it; part, art_2"),
    ],
)
def test_a_short_prompt_is_an_echo_as_a_word_of_its_own(secret: str, said: str) -> None:
    assert redact("art is no part of it; part, art_2", [secret]) == said


def test_several_texts_and_several_echoes() -> None:
    other = "Another turn of the conversation, quite unlike the first"
    said = redact(f"{SECRET} / {other[5:45]} / hi / {SECRET}", ["hi", other, SECRET])
    assert said == " / ".join([MARK] * 4)


def test_a_path_in_a_prompt_is_not_taken_for_escapes() -> None:
    secret = r"Open C:\new\table\august and count\nothing"
    assert redact(f"bad: {secret}", [secret]) == f"bad: {MARK}"


ALPHABET = st.sampled_from("abc \n\"'\\&<é\U0001f98a\x00\u2028")
between = st.text(ALPHABET, max_size=20)
secrets_ = st.text(ALPHABET, min_size=40, max_size=120) | between
places = st.tuples(between, st.integers(0, 1), st.integers(0, 60), st.integers(ECHO - 3, 60))


def shares(message: str, secret: str) -> bool:
    return any(secret[i : i + ECHO] in message for i in range(len(secret) - ECHO + 1))


@given(
    st.lists(secrets_, min_size=2, max_size=4),
    st.lists(places, min_size=1, max_size=4),
    st.sampled_from([str, json.dumps, repr, html.escape, lambda text: json.dumps(json.dumps(text))]),
)
def test_no_run_of_a_secret_stays(secrets, pieces, escape) -> None:
    """The message is made of parts of the secrets and of other text, escaped as a whole."""
    said = ""
    for other, which, start, length in pieces:
        said += other + secrets[which].strip()[start : start + length]
    shown = redact(escape(said), secrets)
    plain = [shown]
    if escape is html.escape:
        plain.append(html.unescape(shown))
    for secret in secrets:
        stripped = secret.strip()
        assert not any(shares(one, stripped) for one in plain)
        assert len(stripped) < 9 or stripped not in shown


@given(st.text(max_size=300), st.lists(st.text(max_size=60), max_size=3))
def test_any_message_and_any_text(message: str, secrets: list[str]) -> None:
    said = told(message, secrets)
    assert len(said) <= MAX_MESSAGE
    said.encode()
    assert not any(shares(said, secret.strip()) for secret in secrets)


@pytest.mark.parametrize("count", [1, 1024])
def test_a_refused_prompt_of_a_megabyte_leaves_the_loop_alive(count: int) -> None:
    """Compiled into regular expressions, these took 15 s, in which nothing else was answered."""

    async def main() -> float:
        longest, stop = 0.0, asyncio.Event()

        async def beat() -> None:
            nonlocal longest
            while not stop.is_set():
                before = time.thread_time()  # of this thread alone: others may be given their turn
                await asyncio.sleep(0.001)
                longest = max(longest, time.thread_time() - before)

        secret = '"\n\\é' * (250_000 // count)
        turns = tuple(Message("user", f"{i} {secret}") for i in range(count))
        request = GenerationRequest(2, Sampling(), messages=turns)
        async with OpenAIServer([status(400, {"error": {"message": f"{LIMIT} {secret}"}})]) as server:
            llm = HttpLanguageModel(server.url, model=MODEL)
            beating = asyncio.create_task(beat())
            with pytest.raises(LLMError) as caught:
                await llm.generate(request)
            stop.set()
            await beating
            await llm.stop()
        said = caught.value.extra["llm_message"]
        assert LIMIT in said
        assert MARK in said
        assert "é" not in said
        return longest

    assert asyncio.run(main()) < 5.0


def test_twenty_three_characters_in_a_row_are_an_echo() -> None:
    text = "Which river is the longest one"  # hardly longer: its parts are looked up, too
    for start in range(len(text) - 23 + 1):
        said = redact(f"near <{text[start : start + 23]}> too long", [text])
        assert said == f"near <{MARK}> too long"
