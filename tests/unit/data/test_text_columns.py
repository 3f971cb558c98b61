"""Columns of running text in tables: recognised, encoded, saved, used by the command."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pytest

from likelier import TextFeatures
from likelier.data import TableEncoder, open_table
from likelier.estimators.tabular import TabularModel

RNG = np.random.default_rng(0)
GOOD, BAD = ["fine", "great", "lovely"], ["poor", "awful", "dull"]


def reviews(n=300):
    """Texts whose words tell the label, a number and a category that do not."""
    labels = RNG.random(n) < 0.5
    texts = [
        " ".join(["the", "film", "number", str(i), *RNG.choice(GOOD if good else BAD, 3)])
        for i, good in enumerate(labels)
    ]
    kinds = RNG.choice(["long film", "short film"], n)
    return pa.table({"text": texts, "kind": kinds, "x": RNG.random(n), "y": labels})


def fit(table, **words):
    return TableEncoder.fit(open_table(table), "y", **words)


def encode(encoder, table):
    (batch,) = open_table(table).blocks(10**6, table.column_names)
    return encoder.transform(batch)


def test_running_text_becomes_words_and_a_category_stays_one():
    table = reviews()
    encoder = fit(table)
    names = list(encoder.get_feature_names_out())
    assert names[:1] == ["text:awful"]
    assert names[-3:] == ["kind=long film", "kind=short film", "x"]
    X = encode(encoder, table)
    width = len(names) - 3
    expected = TextFeatures(min_df=2).fit_transform(table["text"])
    np.testing.assert_allclose(X[:, :width], expected.toarray(), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(X[:, -1], table["x"])


def test_many_words_make_a_sparse_matrix():
    n = 3000
    words = [f"w{i}" for i in range(800)]
    texts = [" ".join(RNG.choice(words, 6)) for _ in range(n)]
    table = pa.table({"a": RNG.random(n), "text": texts, "b": RNG.random(n), "y": [0, 1] * 1500})
    encoder = fit(table)
    assert encoder.sparse
    X = encode(encoder, table)
    assert X.shape == (n, 802)
    assert X.has_sorted_indices
    np.testing.assert_array_equal(X[:, [0]].toarray().ravel(), table["a"])
    np.testing.assert_array_equal(X[:, [801]].toarray().ravel(), table["b"])
    expected = TextFeatures(min_df=2).fit_transform(texts)
    np.testing.assert_allclose((X[:, 1:801] - expected).data, 0.0, atol=1e-15)


@pytest.mark.parametrize("n_words", [10, 400])
def test_missing_texts(n_words):
    texts = [" ".join(RNG.choice([f"w{i}" for i in range(n_words)], 5)) for _ in range(600)]
    texts[3] = None
    table = pa.table({"text": texts, "y": [0, 1] * 300})
    with pytest.raises(ValueError, match=r"missing values in column 'text' \(1\)"):
        fit(table)
    encoder = fit(table, missing="impute")
    assert encoder.get_feature_names_out()[-1] == "text is missing"
    X = encode(encoder, table)
    X = X.toarray() if encoder.sparse else X
    assert X[3].tolist() == [0.0] * (X.shape[1] - 1) + [1.0]
    assert X[:, -1].sum() == 1.0


def test_plain_form():
    encoder = fit(reviews())
    again = TableEncoder.from_json(encoder.to_json())
    assert again == encoder
    table = reviews(50)
    np.testing.assert_array_equal(encode(again, table), encode(encoder, table))
    damaged = encoder.to_json()
    damaged["columns"][0]["text"]["documents"].pop()
    with pytest.raises(ValueError, match="damaged"):
        TableEncoder.from_json(damaged)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([f"id{i}" for i in range(2000)], "exclude it or group"),
        ([f"a{i} b{i} c{i}" for i in range(2000)], "no word of it is in two rows.*exclude"),
    ],
)
def test_columns_that_hold_nothing_to_learn(texts, message):
    with pytest.raises(ValueError, match=f"column 'text' .*{message}"):
        fit(pa.table({"text": texts, "y": [0, 1] * 1000}))


def test_few_different_texts_are_categories():
    texts = ["a rather long category", "another long category here"] * 50
    names = fit(pa.table({"text": texts, "y": [0, 1] * 50})).get_feature_names_out()
    assert list(names) == ["text=a rather long category", "text=another long category here"]


def test_a_file_with_text_is_learned(tmp_path):
    import likelier

    path = tmp_path / "reviews.csv"
    table = reviews(400)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*table.to_pydict().values(), strict=True))
    model = TabularModel(likelier.LinearClassifier(random_state=0), target="y").fit(path)
    likelier.save(model, tmp_path / "model")
    loaded = likelier.load(tmp_path / "model")
    (block,) = loaded.predict_blocks(path)
    assert (block.label == block.y).mean() > 0.98
    assert "text:great" in loaded.feature_names()
