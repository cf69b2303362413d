"""The NLI adapter on a tiny model with random weights: order of classes, and batches of any size."""

import numpy as np
import pytest

from lab.baselines import TransformersEntailment, class_order

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "lyon", "the", "city", "of"]
LABELS = {0: "contradiction", 1: "entailment", 2: "neutral"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # Imported here, because the import takes seconds in each process that collects the tests.
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    made = tmp_path_factory.mktemp("nli") / "tiny-nli"
    made.mkdir()
    (made / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(vocab_file=str(made / "vocab.txt")).save_pretrained(made)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        id2label=LABELS,
        label2id={v: k for k, v in LABELS.items()},
    )
    model = BertForSequenceClassification(config)
    model.classifier.bias.data[:] = model.classifier.bias.data.new_tensor([0.0, 3.0, 1.0])
    model.save_pretrained(made)
    return made


def test_probabilities_are_in_the_documented_order(folder):
    model = TransformersEntailment(folder)
    assert model.name == "tiny-nli"
    probabilities = model.probabilities([("paris", "the city of paris"), ("lyon", "paris")])
    assert probabilities.shape == (2, 3)
    assert probabilities.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert (
        probabilities[:, 0] > probabilities[:, 1]
    ).all()  # the biases say: entailment, then neutral, then contradiction
    assert (probabilities[:, 1] > probabilities[:, 2]).all()


def test_batches_do_not_change_the_result(folder):
    model = TransformersEntailment(folder)
    pairs = [("paris", "lyon " * (1 + i % 5)) for i in range(70)]
    whole = model.probabilities(pairs)
    single = np.concatenate([model.probabilities([pair]) for pair in pairs])
    assert whole == pytest.approx(single, abs=1e-5)
    assert model.probabilities([]).shape == (0, 3)


def test_ambiguous_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must name"):
        class_order({0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"})
    with pytest.raises(ValueError, match="cannot be loaded"):
        TransformersEntailment(tmp_path / "nothing here")
