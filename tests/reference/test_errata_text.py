"""Term weights: the printed forms, where they go wrong, and the default that does not."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import TextFeatures

DOCUMENTS = ["cat dog dog", "cat bird", "cat cat cat dog", ""]
TERMS = ["bird", "cat", "dog"]
DF = np.array([1, 3, 2])
COUNTS = np.array([[0, 1, 2], [1, 1, 0], [0, 3, 1], [0, 0, 0]])


def weights(**words):
    text = TextFeatures(norm=None, **words)
    X = text.fit_transform(DOCUMENTS).toarray()
    assert list(text.get_feature_names_out()) == TERMS
    return X


def test_term_frequency_is_zero_for_an_empty_document():
    lengths = np.array([3, 2, 4, 1])[:, None]  # nothing divided by one
    np.testing.assert_allclose(weights(tf="frequency", idf=None), COUNTS / lengths, rtol=1e-15)


def test_the_documents_two_forms():
    """Term frequency times ``log(N/df)``, and the same with one more under the line."""
    tf = COUNTS / np.array([3, 2, 4, 1])[:, None]
    plain = weights(tf="frequency", idf="plain")
    np.testing.assert_allclose(plain, tf * np.log(4 / DF), rtol=1e-14)
    plus_one = weights(tf="frequency", idf="plain_plus_one")
    np.testing.assert_allclose(plus_one, tf * np.log(4 / (1 + DF)), rtol=1e-14)


def test_one_more_under_the_line_turns_negative_and_the_default_does_not():
    documents = ["the cat", "the dog", "the bird"]
    column = TextFeatures(norm=None, idf="plain_plus_one").fit(documents)
    assert column.idf_[column.vocabulary_["the"]] == pytest.approx(np.log(3 / 4))
    assert column.idf_.min() < 0
    smooth = TextFeatures(norm=None).fit(documents)
    assert smooth.idf_[smooth.vocabulary_["the"]] == 1.0
    assert smooth.idf_.min() > 0


def test_the_plain_form_forgets_a_word_of_all_documents_and_the_default_does_not():
    documents = ["the cat", "the dog"]
    assert TextFeatures(idf="plain").fit_transform(documents)[:, 2].toarray().max() == 0.0
    assert TextFeatures().fit_transform(documents)[:, 2].toarray().min() > 0.5


@pytest.mark.parametrize("idf", ["plain", "unsmoothed"])
def test_a_term_of_no_document_does_not_spoil_later_ones(idf):
    """``log(N/0)`` is infinite: such a term counts as one of a single document."""
    text = TextFeatures(vocabulary=["cat", "never"], idf=idf, norm=None).fit(["cat", "cat dog"])
    assert np.isfinite(text.transform(["never cat"]).toarray()).all()
    hashed = TextFeatures(n_features=64, idf=idf, norm=None).fit(["cat", "cat dog"])
    assert np.isfinite(hashed.transform(["a never seen word"]).data).all()
