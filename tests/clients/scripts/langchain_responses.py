"""LangChain's ChatOpenAI with `use_responses_api`: `invoke` and `stream`."""

from langchain_chat import run

run(use_responses_api=True)
