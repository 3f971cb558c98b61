"""Small tables in every form, encoded, and encodings compared."""

from __future__ import annotations

import datetime as dt
import warnings
from contextlib import contextmanager

import numpy as np
from scipy import sparse

import likelier
from likelier.data import open_table
from likelier.tables import TableEncoding, TableSource
from likelier.tables.decide import Choices
from likelier.tables.learn import learn_encoding


def csv_file(tmp_path, text, name="data.csv"):
    """Write a file."""
    path = tmp_path / name
    path.write_text(text)
    return path


def csv_table(tmp_path, text, name="data.csv", **reading):
    """Write a file and open it."""
    return open_table(csv_file(tmp_path, text, name), **reading)


def columns_csv(columns):
    """Text of a CSV file with these columns; None is an empty cell."""
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join("" if cell is None else str(cell) for cell in row))
    return "\n".join(lines) + "\n"


def learn(table, target=None, kinds=None, exclude=(), **choices):
    """Learn an encoding from anything that is a table."""
    if not hasattr(table, "blocks"):
        table = open_table(table)
    return learn_encoding(table, target, Choices(kinds or {}, **choices), exclude)


def encode(encoding, table, block_rows=1000):
    """Return X and y of a whole table."""
    if not hasattr(table, "blocks"):
        table = open_table(table)
    batches = list(TableSource(table, encoding, block_rows)())
    X = np.concatenate([b.X.toarray() if sparse.issparse(b.X) else b.X for b in batches])
    y = None if batches[0].y is None else np.concatenate([b.y for b in batches])
    return X, y


def names_of(encoding):
    """Names of the output columns."""
    return encoding.get_feature_names_out().tolist()


def plain(value):
    """Return a value that compares by ``==``, arrays as lists."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def same(first, second):
    """Whether two encodings are the same value."""
    return plain(first.to_json()) == plain(second.to_json())


def copy_by_file(encoding, folder):
    """Return the encoding as it comes back from a saved model."""
    features = likelier.TableFeatures()
    features.encoding_ = encoding
    likelier.save(features, folder / "encoding.likelier")
    again = likelier.load(folder / "encoding.likelier").encoding_
    assert isinstance(again, TableEncoding)
    assert same(again, encoding)
    return again


@contextmanager
def no_warning():
    """Fail where there is a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def mixed(n, n_columns, seed=0):
    """A table whose columns are of every kind, in turn."""
    rng = np.random.default_rng(seed)
    first = dt.date(2015, 1, 1)
    makers = [
        lambda: rng.normal(size=n),
        lambda: rng.integers(0, 1000, n),
        lambda: rng.choice(["red", "green", "blue", "grey"], n),
        lambda: rng.choice(["yes", "no"], n),
        lambda: [f"{x:,.2f} EUR" for x in rng.uniform(1, 1e5, n)],
        lambda: [(first + dt.timedelta(int(k))).isoformat() for k in rng.integers(0, 3000, n)],
        lambda: [f"street {k}" for k in rng.integers(0, 80, n)],
        lambda: [" ".join(f"word{k}" for k in row) for row in rng.zipf(1.4, (n, 6)) % 300],
        lambda: np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
        lambda: rng.choice([True, False], n),
    ]
    return {f"c{i}": list(makers[i % len(makers)]()) for i in range(n_columns)}
