"""The drop-in that the settings ask for: the LLM server's API, with scores beside its answers."""

from functools import partial

from service.adapters.llm.wire import draw_of
from service.api.http.deps import Metrics
from service.api.http.error_log import ErrorLog
from service.api.openai.chat import Chat, Keep, telling
from service.app.parts import prompt_shape
from service.domain.chat.running import ChatScorer
from service.domain.chat.upstream import Upstream
from service.domain.ports import LanguageModel
from service.domain.scoring.scorer import Scorer
from service.domain.serving import Serving
from service.settings import Settings


def build_upstream(settings: Settings, llm: LanguageModel, serving: Serving) -> Upstream:
    """Return what takes the calls of /v1 as they are: the LLM server, or the model in this process."""
    if settings.llm_backend == "embedded":
        from service.adapters.embedded_llm.passthrough import ModelUpstream

        return ModelUpstream(
            llm, lambda api: serving.messages_sampling if api == "chat" else serving.sampling
        )
    from service.adapters.llm.passthrough import HttpUpstream

    return HttpUpstream(
        settings.llm_url,
        api_key=settings.llm_api_key.get_secret_value(),
        proxies_from_env=settings.proxies_from_env,
    )


def build_chat(
    settings: Settings,
    upstream: Upstream,
    scorer: Scorer,
    serving: Serving,
    *,
    metrics: Metrics,
    errors: ErrorLog,
    keep: Keep,
) -> Chat:
    """Return the drop-in. `keep` is handed every score, to be fetched by its id."""
    draws_as = partial(draw_of, prompt_shape(settings))
    return Chat(
        upstream=upstream,
        scorer=ChatScorer(scorer, draws_as, telling(metrics, errors, keep)),
        serving=serving,
        mode=settings.chat_mode,
        deadline_s=settings.chat_deadline_s,
        effort=settings.chat_effort or None,
        abstain=settings.abstain,
        abstain_text=settings.abstain_text,
        abstain_fail_open=settings.abstain_fail_open,
        abstain_streams=settings.abstain_streams,
    )
