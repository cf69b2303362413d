"""Self-checks by five draws in place of one token, for servers without log-probabilities.

    python -m benchmarks.self_check_draws URL

URL: a server of Qwen2.5-Coder-1.5B. The script draws five judgements of each recorded answer. It prints the
AUROC of the share of Yes and of the recorded P(True), and the log loss (ECE) of P(correct) without
log-probabilities, fitted on one set and tested on the other, as in `self_check`. Needs ../shared/data and
all-mpnet-base-v2 in data/weights.
"""

import argparse
import asyncio

import numpy as np

from benchmarks.recorded_evidence import EVERYDAY, NAMES, OTHER, QWEN, recorded
from benchmarks.self_check import BOTH, cell, columns, figures, recorded_p_true
from service.llm.ask import is_correct, share_of_yes
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Priority, Sampling
from service.spectral.correctness_model import AGREEMENT, SELF_CHECK, fit_model
from service.spectral.reliability import auroc

DRAWS, CALLERS = 5, 4


async def drawn(llm: LLM, name: str) -> np.ndarray:
    """Return the share of Yes among the draws for each row of a set, .5 if there is neither Yes nor No."""
    gate = asyncio.Semaphore(CALLERS)

    async def share(row: dict[str, str]) -> float:
        request = GenerationRequest(
            num_samples=DRAWS,
            sampling=Sampling(temperature=1.0, max_tokens=1),
            prompt=is_correct(row["prompt"], row["answer"]).prompt(llm.api),
            model=None,
            priority=Priority.LIVE,
            num_alternatives=0,
            is_question=True,
        )
        async with gate:
            found = share_of_yes([draw.text for draw in (await llm.generate(request)).draws])
        return 0.5 if found is None else found

    return np.array(await asyncio.gather(*map(share, recorded(name).rows)))


async def both_sets(url: str) -> dict[str, np.ndarray]:
    """Return the shares of Yes of both sets, by name of the set."""
    llm = LLM(url)
    shares = {name: await drawn(llm, name) for name in (EVERYDAY, QWEN)}
    await llm.stop()
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("url")
    shares = asyncio.run(both_sets(parser.parse_args().url))
    for name, share in shares.items():
        by_draws, by_token = (auroc(p, recorded(name).right) for p in (share, recorded_p_true(name)))
        print(f"{NAMES[name]}: AUROC {by_draws:.3f} by draws, {by_token:.3f} by one token")
    print("\n| fitted on | tested on | m | agreement | self-check | both | AUROC of both |")
    print("|---|---|---|---:|---:|---:|---:|")
    for fitted in (QWEN, EVERYDAY):
        for m in (3, 10):
            known, (features, right) = (
                columns(name, m, fitted, shares[name], evidence=False) for name in (fitted, OTHER[fitted])
            )
            models = [fit_model(*known, names) for names in ((AGREEMENT,), (SELF_CHECK,), BOTH)]
            predicted = [model.predict(features) for model in models]
            cells = [*(cell(figures(p, right)) for p in predicted), f"{auroc(predicted[-1], right):.3f}"]
            print(f"| {NAMES[fitted]} | {NAMES[OTHER[fitted]]} | {m} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
