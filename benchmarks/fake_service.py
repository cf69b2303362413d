"""The service with a fake LLM and a fake embedder: what is left is our own work."""

import sys

import uvicorn

from service.app import create_app
from service.settings import Settings
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.sqlite_store import SqliteStore

# Ten distinct answers of twenty: what the recorded TriviaQA answers show.
ANSWERS = [f"answer {i if i < 10 else 0}" for i in range(20)]

if __name__ == "__main__":
    app = create_app(
        Settings(), llm=FakeLLM(default=ANSWERS), embedder=FakeEmbedder(768), store=SqliteStore()
    )
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
