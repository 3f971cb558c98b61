"""Columns of running text: words, or a few dense columns of many words."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from tests.unit.tables.helpers import encode, learn, names_of, plain

import likelier
from likelier import TextFeatures
from likelier.tables import TableEncoding
from likelier.tables.terms import Sketch, TermCounter

GOOD, BAD = ["fine", "great", "lovely"], ["poor", "awful", "dull"]


def reviews(n=300, seed=0):
    """Texts whose words tell the label, a number and a category that do not."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < 0.5
    texts = [
        " ".join(["the", "film", "number", str(i), *rng.choice(GOOD if good else BAD, 3)])
        for i, good in enumerate(labels)
    ]
    kinds = rng.choice(["long film", "short film", "series"], n)
    return pa.table({"text": texts, "kind": kinds, "x": rng.random(n), "y": labels})


def many_words(n=600, n_words=400, seed=0):
    """Texts of a few topics with words of their own, and common ones."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 5, n)
    part = n_words // 5
    own = rng.integers(0, part, (n, 6)) + topics[:, None] * part
    common = rng.zipf(1.5, (n, 6)) % n_words
    return [" ".join(f"w{k}" for k in row) for row in np.hstack([own, common])]


def topic_texts(n=2000):
    """Texts of twenty topics whose words follow Zipf's law."""
    rng = np.random.default_rng(0)
    words = np.minimum(rng.zipf(1.7, (n, 12)), 50)
    topics = rng.integers(0, 20, n)
    return [" ".join(f"t{k}w{i}" for i in row) for k, row in zip(topics, words, strict=True)]


@pytest.mark.parametrize("dense", [True, False])
def test_few_words_become_columns_and_a_category_stays_one(dense):
    table = reviews()
    encoding = learn(table, "y", dense=dense)
    names = names_of(encoding)
    assert names[:1] == ["text:awful"]
    assert names[-4:] == ["kind=long film", "kind=series", "kind=short film", "x"]
    X, _ = encode(encoding, table)
    width = len(names) - 4
    expected = TextFeatures(min_df=2).fit_transform(table["text"])
    np.testing.assert_allclose(X[:, :width], expected.toarray(), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(X[:, -1], table["x"])


def test_many_words_make_a_sparse_matrix():
    texts = many_words(3000, 800)
    rng = np.random.default_rng(1)
    table = {"a": rng.random(3000), "text": texts, "b": rng.random(3000)}
    encoding = learn(table, dense=False)
    expected = TextFeatures(min_df=2).fit_transform(texts)
    n_words = expected.shape[1]
    assert encoding.notes() == {"text": f"text, {n_words:,} words"}
    assert encoding.sparse
    (batch,) = likelier.data.open_table(table).blocks(10**6)
    X, _ = encoding.transform(batch)
    assert X.shape == (3000, n_words + 2)
    assert X.has_sorted_indices
    np.testing.assert_array_equal(X[:, [0]].toarray().ravel(), table["a"])
    np.testing.assert_array_equal(X[:, [n_words + 1]].toarray().ravel(), table["b"])
    np.testing.assert_allclose((X[:, 1:-1] - expected).data, 0.0, atol=1e-15)


def test_many_words_become_at_most_a_hundred_columns_where_few_are_wanted():
    texts = topic_texts(600)
    encoding = learn({"text": texts}, dense=True)
    n_words = TextFeatures(min_df=2).fit(texts).get_feature_names_out().size
    width = encoding.n_features
    assert 30 <= width <= 100 < n_words
    assert encoding.notes() == {"text": f"text, {n_words} words reduced to {width} columns"}
    assert names_of(encoding) == [f"text {i}" for i in range(width)]
    X, _ = encode(encoding, {"text": texts})
    # likeness of texts is kept: inner products are those of the words, nearly
    words = TextFeatures(min_df=2).fit_transform(texts).toarray()
    likeness = words @ words.T
    assert np.corrcoef((X @ X.T).ravel(), likeness.ravel())[0, 1] > 0.95
    other = topic_texts(700)[600:]
    (column,) = encoding.columns
    expected = column.terms.matrix(other) @ column.projection
    np.testing.assert_allclose(encode(encoding, {"text": other})[0], expected)


@pytest.mark.parametrize(("n_words", "dense"), [(10, False), (400, False), (400, True)])
def test_missing_texts(n_words, dense):
    texts = many_words(600, n_words)
    texts[3] = None
    table = {"text": texts}
    encoding = learn(table, dense=dense)
    assert names_of(encoding)[-1] == "text is missing"
    X, _ = encode(encoding, table)
    assert X[3].tolist() == [0.0] * (X.shape[1] - 1) + [1.0]
    assert X[:, -1].sum() == 1.0


def test_plain_form():
    table = reviews()
    encoding = learn(table, "y")
    again = TableEncoding.from_json(encoding.to_json())
    assert plain(again.to_json()) == plain(encoding.to_json())
    np.testing.assert_array_equal(encode(again, table)[0], encode(encoding, table)[0])
    terms = encoding.to_json()["columns"][0]["terms"]
    for damage in ({"documents": terms["documents"][:-1]}, {"terms": [terms["terms"][0]] * 2}):
        damaged = encoding.to_json()
        damaged["columns"][0]["terms"] = {**terms, **damage}
        with pytest.raises(ValueError, match="damaged"):
            TableEncoding.from_json(damaged)


def test_a_text_without_a_common_word_is_left_out():
    texts = [f"a{i} b{i} c{i}" for i in range(2000)]
    encoding = learn({"text": texts, "x": np.arange(2000) ** 0.5})
    assert names_of(encoding) == ["x"]
    note = "text without repeated words: dropped"
    assert encoding.notes() == {"text": note}
    assert encoding.kinds() == {"text": "text", "x": "number"}
    with pytest.raises(ValueError, match="no usable feature column: no word of its texts"):
        learn({"text": texts})


def test_few_different_texts_are_categories():
    texts = ["a rather long category", "another long category here"] * 50
    assert names_of(learn({"text": texts})) == ["text=another long category here"]


def test_long_names_are_not_running_text_where_they_are_said_to_be_names():
    names = [f"a rather long name of type {i}" for i in range(30)]
    table = {"a": names * 2, "x": np.arange(60) ** 0.5}
    assert learn({"a": names, "x": np.arange(30) ** 0.5}).kinds()["a"] == "text"
    assert learn(table, kinds={"a": "category"}).columns[0].levels == tuple(sorted(names))


def test_a_file_with_text_is_learned(tmp_path):
    path = tmp_path / "reviews.csv"
    table = reviews(400)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(zip(*table.to_pydict().values(), strict=True))
    model = likelier.LinearClassifier(random_state=0).fit(path, y="y")
    likelier.save(model, tmp_path / "model")
    loaded = likelier.load(tmp_path / "model")
    assert (loaded.predict(path) == np.array(table["y"]).astype(str)).mean() > 0.98
    assert "text:great" in loaded.feature_names_in_


# -- the reduction ----------------------------------------------------------------------
def explained(X, directions):
    """Sum of squares of the rows that orthonormal directions keep."""
    return (np.asarray(X @ directions) ** 2).sum() / (X.multiply(X)).sum()


def town_names(n=2000):
    """Names of two parts and a number."""
    rng = np.random.default_rng(0)
    parts = ["north", "south", "upper", "lower", "wood", "field", "bridge", "ham", "ton"]
    return [" ".join(rng.choice(parts, 2)) + str(k) for k in rng.integers(0, 90, n)]


# The part of what the best directions explain. The last has no leading directions to speak of:
# a flat spectrum is the worst case.
REDUCED = {"names": (town_names, 0.94), "topics": (topic_texts, 0.94), "flat": (many_words, 0.8)}


@pytest.mark.parametrize("name", REDUCED)
def test_reduction_explains_nearly_as_much_as_a_singular_value_decomposition(name):
    make, least = REDUCED[name]
    texts, pieces = make(2000), name == "names"
    counts = np.ones(len(texts), dtype=np.int64)
    counter = TermCounter(ngrams=pieces)
    counter.add(texts, counts)
    terms = counter.terms(5000)
    X = terms.matrix(texts)
    for width in (5, 30, 100):
        sketch = Sketch(terms, width)
        for start in range(0, len(texts), 300):
            sketch.add(texts[start : start + 300], counts[start : start + 300])
        directions = sketch.projection()
        assert directions.shape == (len(terms), width)
        np.testing.assert_allclose(directions.T @ directions, np.eye(width), atol=1e-4)
        best = TruncatedSVD(width, random_state=0).fit(X).components_.T
        share = explained(X, directions) / explained(X, best)
        print(f"{name} in {width} columns: {share:.3f}")
        assert least < share <= 1.01


def test_reduction_weighs_rows_by_their_number():
    texts = [f"word{i} other{i} third{i}" for i in range(8)] * 2
    counts = np.array([100, *[1] * 7] * 2)
    counter = TermCounter(ngrams=False)
    counter.add(texts, counts)
    terms = counter.terms(100)
    sketch = Sketch(terms, 1)
    sketch.add(texts, counts)
    (first,) = sketch.projection().T
    strongest = {terms.terms[place] for place in np.argsort(-np.abs(first))[:3]}
    assert strongest == {"word0", "other0", "third0"}


def test_reduction_of_few_or_no_directions():
    counter = TermCounter(ngrams=False)
    counter.add(["same words here", "same words here"], np.array([3, 3]))
    terms = counter.terms(10)
    sketch = Sketch(terms, 5)
    assert not sketch.projection().any()  # no row yet
    sketch.add(["same words here"], np.array([6]))
    assert sketch.projection().shape == (3, 1)
    assert sparse.issparse(terms.matrix(["same"]))
