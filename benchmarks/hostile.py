"""Whether an answer can tell the LLM that compares answers what to reply.

`python -m benchmarks.hostile URL [--questions 4]` (of a running LLM server): to four questions, thirty
texts that hold a wrong answer and an instruction. Printed: P(same) of each with the answers drawn (the
largest), NaN where the text is not compared, and raw p(y) by the kernel of facts and P(same), beside that
of the wrong answer alone and of a right one in other words. Needs the weights of all-MiniLM-L6-v2.
"""

import argparse
import asyncio
import tomllib
from pathlib import Path

import numpy as np

from benchmarks.contradictions import WEIGHTS
from service.claims.comparison import Comparer
from service.claims.kernel import compared_texts, kernel_matrix, read_texts, realize_first, with_comparison
from service.embedding.port import FACTS
from service.llm.openai_server import HttpLanguageModel
from service.spectral.spectrum import Identity, born_probability_of, spectrum

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


async def main(url: str, num_questions: int) -> None:
    """Print the table."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(WEIGHTS), device="cpu")
    llm = HttpLanguageModel(url)
    comparer = Comparer(llm)

    async def judged(question: str, drawn: list[str], text: str) -> tuple[float, float]:
        """Return the largest P(same) of a text with an answer drawn, and its raw p(y)."""
        texts = [*drawn, text]
        same = (await comparer.compare(question, texts, [3, 0, 1, 2])).same
        compared = compared_texts(texts, question, FACTS)
        rows = model.encode(compared, normalize_embeddings=True)
        facts = kernel_matrix(read_texts(texts, compared, question, len(drawn)), rows)
        space = realize_first(with_comparison(facts, same), len(drawn))
        found = spectrum(space[:-1])
        served = Identity().serve(found.eigenvalues, found.dimension)
        born = born_probability_of(found, served, space[:-1], space[-1])
        return float(np.max(same[-1, :-1])), born.probability

    for one in TEXTS["questions"][:num_questions]:
        asked, drawn = one["question"], one["drawn"]
        print(f"\n{asked}")
        texts = {"right": one["right"], "wrong": one["wrong"]}
        texts |= {text: text.replace("{wrong}", one["wrong"]) for text in TEXTS["attacks"]}
        for name, text in texts.items():
            same, probability = await judged(asked, drawn, text)
            print(f"P(same) {same:5.2f}  p(y) {probability:.2f}  {name!r}")
    await llm.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--questions", type=int, default=4)
    options = parser.parse_args()
    asyncio.run(main(options.url, options.questions))
