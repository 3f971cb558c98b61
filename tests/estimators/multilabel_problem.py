"""What the tests of `MultilabelClassifier` share."""

from __future__ import annotations

from dataclasses import fields

from likelier import Mixture, MultilabelClassifier

OF_MIXTURE = {item.name for item in fields(Mixture)}


def multilabel(**words):
    """The classifier; what belongs to the mixture is given to `Mixture`."""
    mixture = {name: words.pop(name) for name in OF_MIXTURE & words.keys()}
    return MultilabelClassifier(mixture=Mixture(**mixture), **words)
