"""The documents: training and test parts as lists of strings."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass

from benchmarks.datasets import data_folder

SETS = ("20newsgroups_bydate", "reuters_r8", "webkb", "movie_reviews")


@dataclass(frozen=True)
class Corpus:
    """Training documents with labels, and test documents where a test part is shipped."""

    name: str
    train: list[str]
    y: list[str]
    test: list[str]
    yt: list[str]

    @property
    def megabytes(self) -> float:
        return sum(len(text.encode()) for text in self.train) / 1e6


def load(name: str) -> Corpus:
    """Read one corpus."""
    folder = data_folder()
    if folder is None:
        raise ValueError("the text benchmarks need LIKELIER_DATA to name the data folder")
    with lzma.open(folder / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    parts: dict[str, tuple[list[str], list[str]]] = {"train": ([], []), "test": ([], [])}
    for record in records:
        texts, labels = parts[record.get("split") or "train"]
        texts.append(record["text"])
        labels.append(str(record["label"]))
    return Corpus(name, *parts["train"], *parts["test"])
