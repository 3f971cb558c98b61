"""The tables as people find them, cut into training and held-out lines that stay as they are.

The folder named by ``LIKELIER_DATA`` holds them in ``tables/`` and ``raw/``; its ``MANIFEST.md``
files say what to expect. Lines are drawn at random, with the bytes of the source: whatever reads
them meets the separators, marks and quotation marks of the original.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import data_folder

CLASSES, NUMBERS = "classification", "regression"
MOST = 5000  # training rows
SHARE = 0.75  # of the rows to train on


@dataclass(frozen=True)
class Table:
    """A file, its target, and what somebody who reads it with pandas has to know."""

    file: str
    target: str
    task: str
    header: bool = True
    reading: Mapping[str, Any] = field(default_factory=dict)  # options of pandas.read_csv
    dates: tuple[str, ...] = ()  # columns


def _open(name: str, target: str, task: str, **words: Any) -> Table:
    return Table(f"tables/{name}.csv.gz", target, task, **words)


def _adult(file: str) -> Table:
    reading = {"skipinitialspace": True, "na_values": ["?"]}
    return Table(file, "-1", CLASSES, header=False, reading=reading)


TABLES = {
    "ames_housing": _open("ames_housing", "SalePrice", NUMBERS),
    "avocado_prices": _open("avocado_prices", "AveragePrice", NUMBERS, dates=("Date",)),
    "bank_customer_churn": _open("bank_customer_churn", "Exited", CLASSES),
    "coffee_ratings": _open(
        "coffee_ratings", "total_cup_points", NUMBERS, dates=("grading_date", "expiration")
    ),
    "credit_approval": _open("credit_approval", "A16", CLASSES, reading={"na_values": ["?"]}),
    "credit_default": _open("credit_default", "default.payment.next.month", CLASSES),
    "fitness_class": _open("fitness_class", "attended", CLASSES),
    "google_play": _open("google_play", "Rating", NUMBERS, dates=("Last Updated",)),
    "melbourne_housing": _open("melbourne_housing", "Price", NUMBERS, dates=("Date",)),
    "miami_housing": _open("miami_housing", "SALE_PRC", NUMBERS),
    "movie_metadata": _open("movie_metadata", "imdb_score", NUMBERS),
    "mushroom": _open("mushroom", "class", CLASSES),
    "online_shoppers": _open("online_shoppers", "Revenue", CLASSES),
    "open_payments": _open("open_payments", "status", CLASSES),
    "soybean": _open(
        "soybean", "class", CLASSES, reading={"skipinitialspace": True, "na_values": ["?"]}
    ),
    "telco_churn": _open("telco_churn", "Churn", CLASSES),
    "used_cars": _open("used_cars", "selling_price", NUMBERS),
    "vehicle_coupon": _open("vehicle_coupon", "Y", CLASSES),
}
# Without a header the target is the last column.
RAW = {
    "abalone": Table("raw/abalone.csv", "-1", NUMBERS, header=False),
    "adult_train": _adult("raw/adult-train.csv.gz"),
    "adult_test": _adult("raw/adult-test.csv.gz"),
    "auto_imports": Table(
        "raw/auto_imports.csv", "-1", NUMBERS, header=False, reading={"na_values": ["?"]}
    ),
    "german": Table("raw/german.csv", "-1", CLASSES, header=False),
    "pollution": Table("raw/pollution.csv", "pm2.5", NUMBERS),
}
ALL = {**TABLES, **RAW}


@dataclass(frozen=True)
class Split:
    """Training and held-out lines of one table, as bytes."""

    name: str
    table: Table
    head: bytes
    train: tuple[bytes, ...]
    held: tuple[bytes, ...]

    def write(self, folder: Path) -> tuple[str, str]:
        """Write both parts as files of their own; return their names."""
        names = f"{self.name}.csv", f"{self.name}-held.csv"
        for name, lines in zip(names, (self.train, self.held), strict=True):
            (folder / name).write_bytes(self.head + b"".join(lines))
        return names

    def frames(self) -> tuple[Any, Any, Any, Any]:
        """Features and targets of both parts as pandas reads the whole; no row without target."""
        whole = io.BytesIO(self.head + b"".join(self.train) + b"".join(self.held))
        header = 0 if self.table.header else None
        frame = pd.read_csv(whole, header=header, low_memory=False, **self.table.reading)
        if len(frame) != len(self.train) + len(self.held):
            raise ValueError(f"{self.name}: pandas reads another number of rows than there are")
        place = frame.columns[-1] if self.table.target == "-1" else self.table.target
        y = targets(frame.pop(place), self.table)
        frame = frame.drop(columns=list(self.table.dates)).rename(columns=str)
        first, known = np.arange(len(frame)) < len(self.train), y.notna()
        train, held = first & known, ~first & known
        return frame[train], y[train].to_numpy(), frame[held], y[held].to_numpy()

    def held_targets(self) -> Any:
        """Targets of all held-out lines, missing ones too, in the order of the lines."""
        whole = io.BytesIO(self.head + b"".join(self.held))
        header = 0 if self.table.header else None
        frame = pd.read_csv(whole, header=header, low_memory=False, **self.table.reading)
        place = frame.columns[-1] if self.table.target == "-1" else self.table.target
        return targets(frame[place], self.table)


def targets(column: Any, table: Table) -> Any:
    """Targets as numbers, or as names of classes that do not depend on who wrote them."""
    if table.task == NUMBERS:
        return column.astype(float)
    names = column.astype(object)
    return names.where(column.isna(), names.map(class_name))


def class_name(value: Any) -> str:
    """One name for all ways to write a class: 1, 1.0; True, TRUE; and blanks around it."""
    text = str(value).strip()
    try:
        return repr(float(text))
    except ValueError:
        return text.lower()


def split(name: str, seed: int) -> Split:
    """Draw training and held-out lines."""
    table = ALL[name]
    rows = list(_lines(table.file))
    head = rows.pop(0) if table.header else b""
    order = np.random.default_rng(seed).permutation(len(rows))
    cut = round(SHARE * len(rows))
    train = tuple(rows[i] for i in np.sort(order[: min(cut, MOST)]))
    held = tuple(rows[i] for i in np.sort(order[cut:]))
    return Split(name, table, head, train, held)


@lru_cache(maxsize=2)
def _lines(file: str) -> tuple[bytes, ...]:
    """Records of a CSV file with their line ends; one may hold several lines in quotes."""
    folder = data_folder()
    if folder is None:
        raise ValueError("set LIKELIER_DATA to the folder of the data sets")
    content = (folder / file).read_bytes()
    content = gzip.decompress(content) if file.endswith(".gz") else content
    lines = io.BytesIO(content).readlines()
    if not lines[-1].endswith(b"\n"):
        lines[-1] += b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    # Latin-1 keeps every byte; commas and quotation marks are the same in UTF-8
    reader = csv.reader(line.decode("latin-1") for line in lines)
    records, start = [], 0
    for cells in reader:
        if cells:
            records.append(b"".join(lines[start : reader.line_num]))
        start = reader.line_num
    return tuple(records)
