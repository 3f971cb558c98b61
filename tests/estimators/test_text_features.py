"""`TextFeatures` as people use it: containers, streams, pipelines, files, mistakes."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import likelier
from likelier import LinearClassifier, TextFeatures

DOCUMENTS = ["The cat sat", "the dog sat down", "Über cats", "", "dog dog dog cat"]
LABELS = ["cat", "dog", "cat", "dog", "dog"]
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "numpy": np.array,
    "objects": lambda texts: np.array(texts, dtype=object),
    "column": lambda texts: np.array(texts, dtype=object)[:, None],
    "pandas": pd.Series,
    "pandas strings": lambda texts: pd.Series(texts, dtype="string"),
    "pandas category": lambda texts: pd.Series(texts, dtype="category"),
    "frame": lambda texts: pd.DataFrame({"text": texts}),
    "polars": pl.Series,
    "polars frame": lambda texts: pl.DataFrame({"text": texts}),
    "arrow": pa.array,
    "arrow large": lambda texts: pa.array(texts, type=pa.large_string()),
    "arrow chunks": lambda texts: pa.chunked_array([texts[:2], texts[2:]]),
    "bytes": lambda texts: [text.encode() for text in texts],
}


def same(A, B):
    return A.shape == B.shape and A.dtype == B.dtype and abs(A - B).max() == 0.0


@pytest.mark.parametrize("container", CONTAINERS)
def test_containers(container):
    expected = TextFeatures().fit_transform(DOCUMENTS)
    given = CONTAINERS[container]
    assert same(TextFeatures().fit_transform(given(DOCUMENTS)), expected)
    assert same(TextFeatures().fit(given(DOCUMENTS)).transform(given(DOCUMENTS)), expected)


def test_files(tmp_path):
    paths = [tmp_path / f"{i}.txt" for i in range(len(DOCUMENTS))]
    for path, text in zip(paths, DOCUMENTS, strict=True):
        path.write_text(text, encoding="latin-1")
    expected = TextFeatures().fit_transform(DOCUMENTS)
    assert same(TextFeatures(encoding="latin-1").fit_transform(paths), expected)
    with pytest.raises(ValueError, match="document 2 is not valid 'utf-8'.*encoding"):
        TextFeatures().fit(paths)
    lines = io.StringIO("\n".join(DOCUMENTS) + "\n")
    assert same(TextFeatures().fit_transform(lines), expected)


WORDS = [
    {},
    {"min_df": 2, "max_df": 0.9},
    {"max_features": 40, "ngram_range": (1, 2)},
    {"analyzer": "char", "ngram_range": (2, 3), "idf": None},
    {"n_features": 64},
    {"vocabulary": ["alpha", "beta", "gamma"]},
]


def generated(n: int = 400) -> list[str]:
    rng = np.random.default_rng(0)
    words = np.array(["alpha", "beta", "gamma", "Änderung", *(f"word{i}" for i in range(300))])
    return [" ".join(words[rng.zipf(1.4, rng.integers(1, 12)) % len(words)]) for _ in range(n)]


@pytest.mark.parametrize("words", WORDS)
def test_partial_fit_in_any_parts_is_fit(words, tmp_path):
    documents = generated()
    whole = TextFeatures(**words).fit(documents)
    parts = TextFeatures(**words)
    for start, stop in ((0, 1), (1, 150), (150, 150), (150, 400)):
        parts.partial_fit(iter(documents[start:stop]))
        likelier.save(parts, tmp_path / "model")  # a stream survives being saved
        parts = likelier.load(tmp_path / "model")
    assert same(parts.transform(documents), whole.transform(documents))
    assert parts.n_documents_ == whole.n_documents_ == 400
    np.testing.assert_array_equal(parts.get_feature_names_out(), whole.get_feature_names_out())
    np.testing.assert_array_equal(parts.document_frequency_, whole.document_frequency_)


def test_partial_fit_goes_on_from_fit_unless_terms_were_forgotten():
    documents = generated()
    whole = TextFeatures().fit(documents)
    parts = TextFeatures().fit(documents[:100]).partial_fit(documents[100:])
    assert same(parts.transform(documents), whole.transform(documents))
    with pytest.raises(ValueError, match="partial_fit from the first documents on"):
        TextFeatures(min_df=2).fit(documents[:100]).partial_fit(documents[100:])


@pytest.mark.parametrize("words", WORDS)
def test_blocks_do_not_matter(words, monkeypatch):
    documents = generated()
    expected = TextFeatures(**words).fit_transform(documents)
    monkeypatch.setattr("likelier.text.analysis._BLOCK", 1)
    monkeypatch.setattr("likelier.text.documents.FEW", 3)
    assert same(TextFeatures(**words).fit_transform(iter(documents)), expected)


@pytest.mark.parametrize("words", WORDS)
def test_saving(words, tmp_path):
    documents = generated()
    text = TextFeatures(**words).fit(documents)
    likelier.save(text, tmp_path / "model")
    loaded = likelier.load(tmp_path / "model")
    assert set(vars(loaded)) == set(vars(text))
    assert same(loaded.transform(documents), text.transform(documents))
    assert same(pickle.loads(pickle.dumps(text)).transform(documents), text.transform(documents))
    assert repr(clone(loaded)) == repr(text)


def test_nothing_of_the_documents_is_kept_beyond_the_vocabulary(tmp_path):
    documents = ["common words here", "common words there", "a secret 4711 common"]
    text = TextFeatures(min_df=2).fit(documents)
    likelier.save(text, tmp_path / "model")
    for kept in (pickle.dumps(text), (tmp_path / "model").read_bytes()):
        assert b"common" in kept
        assert b"secret" not in kept
        assert b"4711" not in kept


def test_memory_of_a_stream_is_that_of_its_terms():
    """Five times the documents, the same words: the peak must not follow."""
    words = [f"w{i:05}" for i in range(5000)]

    def documents(n):
        for i in range(n):
            first = i * 37 % 4800
            yield " ".join(words[first : first + 200])

    def peak(n, **parameters):
        tracemalloc.start()
        TextFeatures(**parameters).fit(documents(n))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    for parameters in ({}, {"n_features": 2**12}):
        TextFeatures(**parameters).fit(documents(10))  # compiled code is loaded
        small, large = peak(2500, **parameters), peak(12_500, **parameters)
        assert large < 1.2 * small  # where the documents alone take 14 MB more


def test_an_interrupted_fit_leaves_the_old_state():
    def broken():
        yield "new words"
        raise KeyboardInterrupt

    text = TextFeatures().fit(DOCUMENTS)
    before = text.transform(DOCUMENTS)
    for method in (text.fit, text.partial_fit, text.fit_transform):
        with pytest.raises(KeyboardInterrupt):
            method(broken())
    assert same(text.transform(DOCUMENTS), before)


def test_pipeline_and_columns():
    model = make_pipeline(TextFeatures(), LinearClassifier(random_state=0))
    assert model.fit(DOCUMENTS, LABELS).predict(["a cat"]).tolist() == ["cat"]
    assert "cat" in model[:-1].get_feature_names_out()
    frame = pd.DataFrame({"text": DOCUMENTS, "title": DOCUMENTS[::-1]})
    columns = ColumnTransformer([("a", TextFeatures(), "text"), ("b", TextFeatures(), "title")])
    assert make_pipeline(columns, LogisticRegression()).fit(frame, LABELS).score(frame, LABELS) > 0
    assert {"a__cat", "b__dog"} <= set(columns.fit(frame).get_feature_names_out())
    with pytest.raises(ValueError, match="2 columns.*ColumnTransformer"):
        TextFeatures().fit(frame)


def test_output_formats():
    assert not hasattr(TextFeatures(), "set_output")  # frames of sparse features there are none
    with config_context(sparse_interface="sparray"):
        assert type(TextFeatures().fit_transform(DOCUMENTS)).__name__ == "csr_array"
    assert TextFeatures().fit(DOCUMENTS).transform([]).shape == (0, 7)
    terms = TextFeatures().fit(DOCUMENTS).inverse_transform(np.eye(7)[[1, 2]])
    assert [list(row) for row in terms] == [["cats"], ["dog"]]


def test_a_given_vocabulary_without_idf_needs_no_fit():
    words = {"vocabulary": ["dog", "cats"], "norm": None}
    text, fitted = (TextFeatures(idf=None, **words) for _ in range(2))
    rows = text.transform(DOCUMENTS)
    np.testing.assert_array_equal(rows.toarray(), fitted.fit_transform(DOCUMENTS).toarray())
    assert list(text.get_feature_names_out()) == ["dog", "cats"]
    assert text.vocabulary_ == {"dog": 0, "cats": 1}
    assert len(text.inverse_transform(rows)) == len(DOCUMENTS)
    with pytest.raises(NotFittedError):
        TextFeatures(**words).transform(DOCUMENTS)


def test_upper_case_terms_of_a_vocabulary_are_warned_of():
    with pytest.warns(UserWarning, match="'Dog'.*lowercase=True"):
        TextFeatures(vocabulary=["Dog", "cats"]).fit(DOCUMENTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TextFeatures(vocabulary=["Dog"], lowercase=False).fit(DOCUMENTS)
        TextFeatures(vocabulary=["dog"]).fit(DOCUMENTS)


@pytest.mark.parametrize(("errors", "term"), [("ignore", "caf"), ("replace", "caf")])
def test_bytes_that_cannot_be_decoded(errors, term):
    documents = ["café olé".encode("latin-1")]
    assert term in TextFeatures(decode_error=errors).fit(documents).vocabulary_
    with pytest.raises(ValueError, match="document 0 is not valid 'utf-8'.*decode_error"):
        TextFeatures().fit(documents)
    with pytest.raises(ValueError, match="decode_error must be one of"):
        TextFeatures(decode_error="drop").fit(documents)


def test_hashing_without_idf_needs_no_fit():
    text = TextFeatures(n_features=32, idf=None)
    X = text.transform(DOCUMENTS)
    assert same(text.fit(DOCUMENTS).transform(DOCUMENTS), X)
    assert text.get_feature_names_out()[-1] == "textfeatures31"
    with pytest.raises(AttributeError, match="terms are hashed"):
        _ = text.vocabulary_
    for unfitted in (TextFeatures(), TextFeatures(n_features=32)):
        with pytest.raises(NotFittedError):
            unfitted.transform(DOCUMENTS)


@pytest.mark.parametrize(
    ("documents", "kind", "message"),
    [
        ("one text", ValueError, "single str.*list of documents"),
        (["a", None], ValueError, r"document 1 is missing \(None\)"),
        (pd.Series(["a", np.nan]), ValueError, "document 1 is missing"),
        (pd.Series(["a", None], dtype="string"), ValueError, "document 1 is missing"),
        (pl.Series(["a", None]), ValueError, "document 1 is missing"),
        (["fine", 3.5], TypeError, "document 1 is of type float, not text"),
        ([["a", "b"]], TypeError, "document 0 is of type list"),
        (np.zeros((2, 2)), ValueError, r"shape \(2, 2\)"),
        (7, TypeError, "X is of type int"),
        (["fine", "bad \ud800 here"], ValueError, r"document 1 .*U\+D800 at position 4.*Repair"),
        ([], ValueError, "empty vocabulary"),
        (["", "a"], ValueError, "empty vocabulary"),
    ],
)
def test_documents_that_cannot_be_read(documents, kind, message):
    with pytest.raises(kind, match=message):
        TextFeatures().fit(documents)


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        ({"analyzer": "words"}, ValueError, "analyzer must be one of"),
        ({"ngram_range": (2, 1)}, ValueError, "ngram_range must be"),
        ({"ngram_range": 2}, ValueError, "ngram_range must be"),
        ({"ngram_range": (1, 2.5)}, ValueError, "ngram_range must be"),
        ({"strip_accents": "all"}, ValueError, "strip_accents must be one of"),
        ({"token_pattern": "("}, ValueError, "token_pattern '\\(' is not a valid regex"),
        ({"token_pattern": r"(\w)(\w)"}, ValueError, "2 capturing groups"),
        ({"token_pattern": None}, TypeError, "token_pattern must be"),
        ({"stop_words": "german"}, ValueError, "stop_words must be 'english'"),
        ({"stop_words": 3}, TypeError, "stop_words must be"),
        ({"stop_words": ["a", 3]}, TypeError, "stop_words"),
        ({"min_df": 1.5}, ValueError, "min_df as a float"),
        ({"min_df": "2"}, TypeError, "min_df must be"),
        ({"max_df": 0}, ValueError, "max_df must be positive"),
        ({"max_df": 1, "min_df": 2}, ValueError, "max_df=1 corresponds to fewer"),
        ({"min_df": 5}, ValueError, "no terms remain.*lower min_df"),
        ({"max_features": 0}, ValueError, "max_features must be at least 1"),
        ({"max_features": 2.0}, TypeError, "max_features must be"),
        ({"n_features": 0}, ValueError, "n_features must be at least 1"),
        ({"n_features": 2**31}, ValueError, "less than 2"),
        ({"n_features": 8, "min_df": 2}, ValueError, "min_df, max_df and max_features"),
        ({"n_features": 8, "vocabulary": ["a"]}, ValueError, "mutually exclusive"),
        ({"n_features": 8, "sublinear_tf": True}, ValueError, "alternate_sign=False"),
        ({"vocabulary": ["a", "a"]}, ValueError, "'a' twice"),
        ({"vocabulary": {"a": 1}}, ValueError, "columns 0, 1, 2"),
        ({"vocabulary": []}, ValueError, "vocabulary is empty"),
        ({"vocabulary": "abc"}, TypeError, "vocabulary must be"),
        ({"vocabulary": [1]}, TypeError, "not a string"),
        ({"tf": "log"}, ValueError, "tf must be one of"),
        ({"idf": True}, ValueError, "idf must be one of"),
        ({"norm": "max"}, ValueError, "norm must be one of"),
        ({"dtype": "int64"}, ValueError, "supports only counts"),
        ({"dtype": "float16"}, ValueError, "dtype must be float64"),
        ({"dtype": "number"}, TypeError, "dtype must be"),
    ],
)
def test_words_that_mean_nothing(words, kind, message):
    with pytest.raises(kind, match=message):
        TextFeatures(**words).fit(DOCUMENTS)


CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("words", [{}, {"n_features": 16}])
def test_scikit_learns_checks_that_need_no_data(name, words):
    getattr(estimator_checks, name)("TextFeatures", TextFeatures(**words))


def test_stop_words_that_can_never_match_are_told():
    with pytest.warns(UserWarning, match="don"):
        TextFeatures(stop_words=["don't"]).fit(DOCUMENTS)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ({"n_features": 8}, {"n_features": 2**28}),
        ({"n_features": 8}, {"n_features": None}),
        ({}, {"n_features": 2**28}),
        ({}, {"vocabulary": ["alpha", "beta"]}),
        ({"idf": None}, {"idf": "smooth"}),
        ({"n_features": 8, "idf": None}, {"idf": "smooth"}),
        ({"n_features": 8, "idf": None}, {"n_features": None}),
    ],
)
def test_columns_that_fit_has_not_seen_are_refused(words, changed):
    documents = ["alpha beta gamma", "beta gamma delta"]
    model = TextFeatures(**words).fit(documents)
    before = model.transform(documents).toarray()
    learned = {name: getattr(model, name) for name in words | changed}
    model.set_params(**changed)
    for method in (model.transform, model.partial_fit):
        with pytest.raises(ValueError, match="changed; fit again"):
            method(documents)
    model.set_params(**learned)
    np.testing.assert_array_equal(model.transform(documents).toarray(), before)


def test_weights_of_a_wrong_length_are_refused():
    documents = ["alpha beta gamma", "beta gamma delta"]
    model = TextFeatures().fit(documents)
    model.idf_ = np.ones(1)
    with pytest.raises(ValueError, match="1 columns"):
        model.transform(documents)


@pytest.mark.parametrize("name", ["lowercase", "binary", "sublinear_tf", "alternate_sign"])
@pytest.mark.parametrize("value", ["no", "x", 1, None])
def test_flags_that_are_neither_true_nor_false_are_named(name, value):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got {value!r}"):
        TextFeatures(**{name: value}).fit(DOCUMENTS)
    TextFeatures(**{name: np.bool_(False)}).fit(DOCUMENTS)


def test_an_encoding_that_is_none_is_named():
    for encoding in ("nope", "hex", ""):
        with pytest.raises(ValueError, match=f"encoding='{encoding}' is not a known text encoding"):
            TextFeatures(encoding=encoding).fit([b"alpha", b"beta"])
    with pytest.raises(TypeError, match="encoding must be the name"):
        TextFeatures(encoding=None).fit([b"alpha", b"beta"])
    for encoding in ("utf-16", "latin-1", "UTF8", "cp1252"):
        model = TextFeatures(encoding=encoding).fit(["alpha".encode(encoding)])
        assert model.vocabulary_ == {"alpha": 0}
