"""Categories: one-hot columns, pooled rare levels, encoding by spelling, unseen levels."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.tables.helpers import copy_by_file, encode, learn, names_of

from likelier import TableFeatures
from likelier.data import open_table

N = 200
X = np.random.default_rng(0).normal(size=N)


def levels(counts):
    """A column with so many rows of each level, shuffled."""
    cells = [level for level, count in counts.items() for _ in range(count)]
    return np.random.default_rng(0).permutation(cells).tolist()


# -- few levels -------------------------------------------------------------------------
def test_levels_have_a_column_each():
    table = {"c": levels({"a": 50, "b": 70, "c": 80}), "x": X}
    encoding = learn(table)
    assert names_of(encoding) == ["c=a", "c=b", "c=c", "x"]
    features, _ = encode(encoding, table)
    for place, level in enumerate("abc"):
        np.testing.assert_array_equal(features[:, place], np.array(table["c"]) == level)


def test_two_levels_share_a_column():
    table = {"c": levels({"a": 50, "b": 150}), "x": X}
    assert names_of(learn(table)) == ["c=b", "x"]
    table["c"][0] = None  # a third case
    assert names_of(learn(table)) == ["c=a", "c=b", "c is missing", "x"]


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ({"a": 100, "b": 97, "p": 1, "q": 2}, ["c=a", "c=b", "c is rare"]),
        ({"a": 100, "b": 94, "p": 3, "q": 3}, ["c=a", "c=b", "c=p", "c=q"]),
        ({"a": 100, "b": 98, "p": 2}, ["c=a", "c=b", "c=p"]),  # a single rare level is not pooled
        ({"a": 197, "p": 1, "q": 2}, ["c=a", "c is rare"]),
    ],
)
def test_rare_levels_share_a_column_if_there_are_two(counts, names):
    table = {"c": levels(counts), "x": X}
    encoding = learn(table)
    assert names_of(encoding) == [*names, "x"]
    features, _ = encode(encoding, table)
    np.testing.assert_array_equal(features[:, : len(names)].sum(axis=1), 1)
    if "c is rare" in names:
        rare = np.isin(table["c"], ["p", "q"])
        np.testing.assert_array_equal(features[:, names.index("c is rare")], rare)


def test_levels_that_are_all_rare_have_columns():
    table = {"c": ["a", "b", "c", "d"], "x": X[:4]}
    assert names_of(learn(table)) == ["c=a", "c=b", "c=c", "c=d", "x"]


@pytest.mark.parametrize(("n_levels", "spelled"), [(40, False), (41, True)])
def test_more_than_forty_levels_are_read_by_their_spelling(n_levels, spelled):
    table = {"c": [f"level{i % n_levels}" for i in range(400)], "x": np.arange(400) ** 0.5}
    encoding = learn(table)
    assert encoding.notes()["c"].endswith("encoded by spelling") == spelled
    assert encoding.n_features == (31 if spelled else 41)
    features = TableFeatures(max_categories=50).fit(table)
    assert len(features.get_feature_names_out()) == n_levels + 1
    features = TableFeatures(max_categories=5, n_components=7).fit(table)
    assert features.get_feature_names_out().tolist() == [*(f"c {i}" for i in range(7)), "x"]


def test_many_rare_levels_beside_few_common_ones_are_pooled():
    counts = {"a": 5000, "b": 4000, "c": 1000} | {f"rare{i}": 2 for i in range(60)}
    table = {"c": levels(counts)}
    assert names_of(learn(table)) == ["c=a", "c=b", "c=c", "c is rare"]


# -- many levels ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def names():
    """Fifty thousand levels, among them variants in the spelling of some."""
    rng = np.random.default_rng(0)
    parts = ["north", "south", "clear", "stone", "silver", "winter", "apple", "eagle", "copper"]
    ends = ["ville", "bridge", "field", "port", "mouth", "ham", "stead", "burgh"]
    found = {}
    while len(found) < 50_000:
        one, two = rng.choice(parts, 2)
        found[f"{one}{two}{rng.choice(ends)} {rng.integers(10_000)}"] = None
    return list(found)


@pytest.fixture(scope="module")
def by_spelling(names):
    return learn({"c": names + names, "x": np.arange(2 * len(names)) ** 0.5})


def test_fifty_thousand_levels_become_thirty_columns(names, by_spelling):
    assert by_spelling.notes() == {"c": "category of 50,000 levels, encoded by spelling"}
    assert names_of(by_spelling) == [*(f"c {i}" for i in range(30)), "x"]
    features, _ = encode(by_spelling, {"c": names[:100], "x": np.zeros(100)})
    assert np.isfinite(features).all()
    assert (np.ptp(features[:, :30], axis=0) > 0).all()


def test_names_that_are_spelled_alike_are_near(names, by_spelling):
    rng = np.random.default_rng(1)
    chosen = [str(name) for name in rng.choice(names, 200, replace=False)]
    variants = [name.title().replace("ville", "vile").replace("mouth", "mouht") for name in chosen]

    def places(cells):
        with pytest.warns(UserWarning, match="'c'"):
            found, _ = encode(by_spelling, {"c": [*cells, "?!"], "x": np.zeros(len(cells) + 1)})
        return found[:-1, :30]

    own, near = places(chosen), places(variants)
    far = np.linalg.norm(own - own[rng.permutation(200)], axis=1)
    distance = np.linalg.norm(own - near, axis=1)
    assert np.median(distance) < 0.2 * np.median(far)
    assert (distance < far).mean() > 0.95


def test_known_and_unknown_names_are_told_apart(names, by_spelling, tmp_path):
    again = copy_by_file(by_spelling, tmp_path)
    table = {"c": [names[7], "nowhere at all", names[9]], "x": [0.0, 0.0, 0.0]}
    for encoding in (by_spelling, again):
        with pytest.warns(UserWarning, match=r"'c' \(1\)"):
            encode(encoding, table)


def test_names_that_are_mostly_their_own_surprise_nobody(recwarn):
    table = {"c": [f"customer number {i} of {i % 7}" for i in range(N)], "x": X}
    table["c"][1] = table["c"][0]
    encoding = learn(table, kinds={"c": "category"})
    encode(encoding, {"c": ["customer number 777 of 3"], "x": [0.0]})
    assert not recwarn.list


# -- unseen levels ----------------------------------------------------------------------
UNSEEN = {
    "three levels": (levels({"a": 50, "b": 70, "c": 80}), [0.25, 0.35, 0.4]),
    "two levels": (levels({"a": 50, "b": 150}), [0.75]),
    "rare levels": (levels({"a": 96, "b": 100, "p": 2, "q": 2}), [0.48, 0.5, 0.02]),
    "boolean": (levels({"yes": 50, "no": 150}), [0.25]),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_an_unseen_level_is_the_average_of_training(name):
    cells, average = UNSEEN[name]
    features = TableFeatures().fit({"c": cells, "x": X})
    table = {"c": ["never", cells[0], "neither"], "x": [0.0, 0.0, 0.0]}
    with pytest.warns(UserWarning, match=r"of 3 rows.*'c' \(2\)") as told:
        found = features.transform(table)
    assert len(told) == 1
    np.testing.assert_allclose(found[[0, 2], :-1], [average, average])
    whole = features.transform({"c": cells, "x": X})
    np.testing.assert_allclose(whole[:, :-1].mean(axis=0), average)
    np.testing.assert_array_equal(found[1, :-1], whole[0, :-1])


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_unseen_levels_are_counted_in_one_warning(block_rows):
    encoding = learn({"c": UNSEEN["three levels"][0], "d": UNSEEN["boolean"][0], "x": X})
    later = {"c": ["a", "new", "b"] * 10, "d": ["maybe", "no"] * 15, "x": np.zeros(30)}
    with pytest.warns(UserWarning, match=r"of 30 rows.*'d' \(15\), 'c' \(10\)") as told:
        encode(encoding, later, block_rows)
    assert len(told) == 1


def test_draws_of_an_unseen_level_are_levels_of_training():
    encoding = learn({"c": UNSEEN["three levels"][0], "d": UNSEEN["boolean"][0], "x": X})
    batch = {"c": ["a", "new", "new", "b"], "d": ["yes", "no", "maybe", "no"], "x": [1.0, 2, 3, 4]}
    (block,) = open_table(batch).blocks(10)
    features, strange = encoding.transform(block)
    rows, copies = encoding.alternatives(features, strange)
    assert rows.tolist() == [1, 2]
    copies = copies.reshape(2, -1, features.shape[1])
    for copy, number, flags in zip(copies, (2, 3), ({0.0}, {0.0, 1.0}), strict=True):
        np.testing.assert_array_equal(copy[:, :3].sum(axis=1), 1)
        assert set(copy[:, :3].ravel()) == {0.0, 1.0}
        np.testing.assert_allclose(copy[:, :3].mean(axis=0), [0.25, 0.35, 0.4], atol=0.03)
        assert set(copy[:, 3]) == flags
        assert set(copy[:, -1]) == {number}
    np.testing.assert_allclose(copies[1, :, 3].mean(), 0.25)
