"""Estimator convergence: how lambda_max settles as answers are added."""

from service.domain.study.bench import Bench
from service.domain.study.model import Experiment, TableRow, ran
from service.spectral.batch import overlaps
from service.spectral.sample_size import lambda_max_by_size

NAME, TITLE = "estimator_convergence", "Estimator convergence: λmax by number of answers"


def convergence(bench: Bench) -> Experiment:
    """Return mean and deviation of the raw lambda_max over random subsets of the answers in the files."""
    deep = bench.deep
    parts = [overlaps(deep.answers[i]) for i in deep.full]
    found = lambda_max_by_size(
        [p.cosines for p in parts],
        [p.index for p in parts],
        bench.rng(5),
        step=5 if deep.num_samples >= 10 else 1,
    )
    columns = zip(found.sizes, found.mean, found.std, strict=True)
    points = [
        {"num_samples": int(m), "mean": float(mean), "deviation": float(std)} for m, mean, std in columns
    ]
    headline: TableRow = {
        "prompts": len(parts),
        "from_num_samples": int(found.sizes[0]),
        "to_num_samples": int(found.sizes[-1]),
        "mean_at_first": float(found.mean[0]),
        "mean_at_last": float(found.mean[-1]),
        "last_step": float(found.mean[-1] - found.mean[-2]) if found.sizes.size > 1 else None,
    }
    return ran(NAME, TITLE, headline, points)
