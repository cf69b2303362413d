"""The Retry-After header."""

import pytest

from service.errors import LLMUnavailable
from tests.api.conftest import Client
from tests.support.fakes import FakeLLM


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (None, "2"),
        (-5.0, "1"),
        (7.4, "7"),
    ],
)
async def test_retry_after_is_a_sensible_number_of_seconds(
    client: Client, llm: FakeLLM, asked: float | None, told: str
) -> None:
    llm.fail_with = [LLMUnavailable("The LLM server refuses work for now.", retry_after_s=asked)]
    async with client() as http:
        response = await http.post("/score", json={"prompt": "p"})
    assert (response.status_code, response.headers["retry-after"]) == (503, told)
