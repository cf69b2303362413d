"""Whole answers, gathered from the events of a stream."""

from service.proxy.completions import Completions


def test_members_of_a_chat_come_from_the_first_event_that_has_them() -> None:
    first = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "Paris"}}]}
    last = {"id": "c2", "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": {"n": 1}}
    whole: dict[str, object] = {}
    for event in ({"status": "processing"}, first, last):
        whole = Completions("chat").gathered(whole, event)
    assert (whole["id"], whole["model"], whole["usage"]) == ("c1", "m", {"n": 1})
    [choice] = Completions("chat").let_through(whole, "Paris")["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Paris", "length")
