"""The journal of a fit: bits survive, a file is whole or not used, failures leave the last one."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import time
import types
import warnings
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from likelier.base import Batch, Info
from likelier.files import archive, states
from likelier.files.journal import Journal
from likelier.files.states import decode, encode
from likelier.kernels import Matern
from likelier.losses import Hinge, Quantile

FACTS = {"class": "LinearClassifier", "max_iter": 1000, "alpha": 0.5, "tol": None}


def opened(folder: Path, fingerprint: str = "ab12", **changes: Any) -> Journal:
    return Journal.open(folder, fingerprint, FACTS | changes)


def there_and_back(value: Any) -> Any:
    return decode(encode(value, "value"))


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        layout = ("c_contiguous", "f_contiguous")
        assert [getattr(one.flags, name) for name in layout] == [
            getattr(other.flags, name) for name in layout
        ]
        if one.dtype == object:
            for a, b in zip(one.ravel(), other.ravel(), strict=True):
                assert_same(a, b)
        else:
            assert one.tobytes() == other.tobytes()
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert_same(list(one.items()), list(other.items()))
    elif isinstance(one, float):
        assert np.float64(one).tobytes() == np.float64(other).tobytes() or one != one != other
    elif isinstance(one, np.generic):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
    else:
        assert one == other


def a_tie() -> np.ndarray:
    array = np.empty((2, 2), dtype=object)
    array[:] = [["a", None], [1, 2.5]]
    return array


def nested() -> np.ndarray:
    array = np.empty(2, dtype=object)
    array[0], array[1] = [1, 2], (3, "x")
    return array


rng = np.random.default_rng(0)
VALUES = [
    None, True, 3, -(2**70), "text \udc80 é", 0.1, -0.0, math.nan, math.inf, -math.inf,
    [], (), {}, [1, (2.0, [None])], {"a": 1, 2: [3], (0, "b"): 4, None: 5, 2.5: 6},
    np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("ab"), np.complex128(1 + 2j),
    np.array(2.5), np.array([math.nan, -0.0, math.inf]), np.zeros((0, 3)), np.zeros((3, 0, 2)),
    rng.random((3, 4)), np.asfortranarray(rng.random((3, 4))), rng.random((2, 3, 4)).T,
    rng.random((3, 4)).astype(">f8"), rng.random(5).astype(np.float16),
    np.arange(6, dtype=np.uint64).reshape(2, 3), np.array([True, False]),
    np.array(["a", "ß", ""]), np.array([b"a", b"bc"]), np.asfortranarray([["a", "b"], ["c", "dd"]]),
    rng.random(3) + 1j, a_tie(), np.asfortranarray(a_tie()), np.array(None, dtype=object), nested(),
    np.array(["2020-01-01", "NaT"], dtype="M8[ns]"), np.array([[1, 2], [3, 4]], dtype="m8[s]").T,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_bits_types_and_memory_order_survive(value: Any) -> None:
    assert_same(there_and_back(value), value)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_matrices_survive(kind: Any) -> None:
    matrix = kind(np.array([[0.0, 1.5], [2.0, 0.0], [0.0, 0.0]]))
    found = there_and_back(matrix)
    assert type(found) is kind and found.shape == matrix.shape
    for name in ("data", "indices", "indptr"):
        assert_same(getattr(found, name), getattr(matrix, name))


def test_strided_arrays_come_back_by_rows_and_all_can_be_written_to() -> None:
    strided = np.arange(12.0).reshape(3, 4)[:, ::2]
    found = there_and_back(strided)
    assert np.array_equal(found, strided) and found.flags.c_contiguous
    found[0] = 1.0
    assert found.flags.aligned and found.flags.owndata | (found.base is not None)


def test_losses_kernels_and_records_of_likelier_survive() -> None:
    value = [Hinge(), Quantile(tau=0.9), Matern(gamma=0.5), Info(0.5, math.inf, 1.0, True, "x")]
    assert there_and_back(value) == value
    batch = there_and_back(Batch(np.eye(2), y=np.array([1, 2]), index=3))
    assert isinstance(batch, Batch) and batch.index == 3 and batch.weight is None
    assert_same(batch.X, np.eye(2))


def plain_values() -> Any:
    scalars = (
        st.none() | st.booleans() | st.integers() | st.text(max_size=5)
        | st.floats() | st.floats(width=32).map(np.float32) | st.integers(0, 255).map(np.uint8)
        | st.lists(st.floats(), max_size=4).map(np.array)
    )  # fmt: skip
    keys = st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
        ),
        max_leaves=8,
    )


@settings(max_examples=60)
@given(plain_values())
def test_nested_values_survive(value: Any) -> None:
    assert_same(there_and_back(value), value)


# -- dataclasses ------------------------------------------------------------------------------


@dataclass
class Outside:
    x: int = 1


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module of likelier with a frozen and a plain dataclass."""
    made = types.ModuleType("likelier.made_up")

    @dataclass(frozen=True)
    class State:
        weights: np.ndarray
        step: int = 0
        cache: dict[str, int] = field(default_factory=dict, metadata={"checkpoint": False})
        total: float = field(init=False, default=0.0)

    @dataclass
    class Plain:
        items: list[int]

    for cls in (State, Plain):
        cls.__module__, cls.__qualname__ = made.__name__, cls.__name__
        setattr(made, cls.__name__, cls)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_fields_that_are_no_part_of_a_checkpoint_get_their_default(module: Any) -> None:
    state = module.State(np.arange(3.0), 7, {"a": 1})
    object.__setattr__(state, "total", 2.5)
    found = there_and_back({"state": state, "plain": [module.Plain([1, 2])]})
    assert (found["state"].step, found["state"].cache, found["state"].total) == (7, {}, 2.5)
    assert_same(found["state"].weights, state.weights)
    assert found["plain"] == [module.Plain([1, 2])]


def test_a_dataclass_with_other_fields_counts_as_another_version(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).keep("fit", module.Plain([1]))
    other = make_dataclass("Plain", ["items", "more"])
    other.__module__ = module.__name__
    monkeypatch.setattr(module, "Plain", other)
    journal = opened(tmp_path)
    assert not journal.resumed and journal.state("fit") is None
    assert "has other fields in this version" in journal.problem
    assert journal.problem.endswith("the fit starts anew") and "\n" not in journal.problem


@pytest.mark.parametrize(
    "name",
    ["os:stat_result", "likelier:Info", "likelier.base:Loss.name", "likelier.base:Array",
     "likelierx.base:Info", "likelier.base.os:Info", "likelier.__main__:main", "likelier.nothing:A",
     "likelier.losses:Loss", "subprocess:Popen", 3],
)  # fmt: skip
def test_names_of_foreign_classes_are_refused(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_name_of", lambda cls, where: name)
    forged = encode(Info(), "value")
    with pytest.raises(ValueError, match="class of likelier|no module|not a dataclass"):
        decode(forged)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(Outside(), "is not a dataclass of likelier"), (object(), "it is a object"),
     (lambda: 1, "Functions cannot be stored"), (np.zeros(2, dtype="f4,i4"), "no portable form"),
     ({frozenset(): 1}, "key"), (np.random.default_rng(0), "Use an int as random_state")],
)  # fmt: skip
def test_what_has_no_plain_form_is_refused_by_name(value: Any, reason: str, tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(TypeError, match=r"result of 'scales'\.deep.* cannot be saved") as error:
        journal.record("scales", {"deep": [value]})
    assert reason in str(error.value)
    assert not journal.has("scales") and not list(tmp_path.iterdir())


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError, match="contains itself"):
        encode(value, "value")


# -- stages -----------------------------------------------------------------------------------


def test_stages_are_found_again_until_the_fit_is_finished(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    journal = opened(folder)
    assert not folder.exists() and not journal.resumed and journal.problem == journal.nearest == ""
    journal.record("scales", np.arange(3.0))
    journal.keep("weights", {"step": 1})
    journal.keep("weights", {"step": 2})

    again = opened(folder)
    assert again.resumed and again.problem == again.nearest == ""
    assert again.has("scales") and not again.has("weights")
    assert_same(again.result("scales"), np.arange(3.0))
    assert again.state("weights") == {"step": 2} and again.state("scales") is None
    again.record("weights", None)

    last = opened(folder)
    assert last.has("weights") and last.result("weights") is None and last.state("weights") is None
    with pytest.raises(KeyError):
        last.result("certificate")
    last.finish()
    assert list(folder.iterdir()) == []
    assert not opened(folder).resumed


def test_what_is_handed_out_does_not_change_what_is_recorded(tmp_path: Path) -> None:
    journal, value = opened(tmp_path), np.zeros(2)
    journal.record("scales", value)
    value[0] = journal.result("scales")[1] = 5.0
    assert np.array_equal(journal.result("scales"), np.zeros(2))


def test_results_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, encoded = opened(tmp_path), []
    monkeypatch.setattr(
        "likelier.files.journal.encode",
        lambda value, where: encoded.append(where) or encode(value, where),
    )
    journal.record("scales", np.zeros(3))
    journal.keep("weights", 1)
    journal.keep("weights", 2)
    assert encoded == ["result of 'scales'", "state of 'weights'", "state of 'weights'"]


def test_two_fits_in_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    one, two = opened(tmp_path, "a1"), opened(tmp_path, "b2", max_iter=5)
    one.record("scales", 1)
    two.record("scales", 2)
    one.keep("weights", 3)
    two.finish()
    again = opened(tmp_path, "a1")
    assert again.result("scales") == 1 and again.state("weights") == 3


# -- the nearest fit --------------------------------------------------------------------------


def test_the_nearest_of_other_fits_is_named_by_its_differences(tmp_path: Path) -> None:
    opened(tmp_path, "a1", max_iter=500).keep("fit", 1)
    opened(tmp_path, "b2", max_iter=200, alpha=math.nan).keep("fit", 1)
    start = "checkpoints here are of other fits; the nearest differs in "
    assert opened(tmp_path).nearest == f"{start}max_iter (500, here 1000)"
    found = opened(tmp_path, "c3", max_iter=200, alpha=math.nan, tol="x" * 100, more=True).nearest
    cut = "'" + "x" * 36
    assert found == f"{start}tol (None, here {cut}...), more (absent, here True)"
    assert opened(tmp_path, "a1", max_iter=500).nearest == ""


def test_many_differences_are_counted_and_other_files_ignored(tmp_path: Path) -> None:
    (tmp_path / "likelier-junk.checkpoint").write_bytes(b"junk")
    assert opened(tmp_path).nearest == ""
    Journal.open(tmp_path, "a1", {"a": 1, "b": 2, "c": 3, "d": 4}).keep("fit", 1)
    assert opened(tmp_path).nearest.endswith(" and 5 more")


# -- damage -----------------------------------------------------------------------------------


def two_states(folder: Path) -> Path:
    journal = opened(folder)
    journal.record("scales", np.arange(2.0))
    journal.keep("weights", 1)
    journal.keep("weights", 2)
    return journal.path


def test_no_changed_byte_is_ever_used(tmp_path: Path) -> None:
    path = two_states(tmp_path)
    good = path.read_bytes()
    positions = np.unique(np.linspace(0, len(good) - 1, 150).astype(int))
    for position in [*positions.tolist(), *range(70)]:
        damaged = bytearray(good)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        journal = opened(tmp_path)
        assert journal.resumed and journal.state("weights") == 1
        assert f"checkpoint {path} cannot be used: " in journal.problem
        assert journal.problem.endswith("; the one before it is used")


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b[:40], lambda b: b"",
                                    lambda b: b + b"x", lambda b: b"PK" + b])  # fmt: skip
def test_truncated_and_foreign_files_are_not_used(tmp_path: Path, change: Any) -> None:
    path = two_states(tmp_path)
    for file in (path, path.with_name(f"{path.name}.previous")):
        file.write_bytes(change(file.read_bytes()))
    journal = opened(tmp_path)
    assert not journal.resumed and not journal.has("scales")
    assert journal.problem.count("cannot be used") == 2
    assert journal.problem.endswith("; the fit starts anew")
    journal.keep("weights", 9)
    assert opened(tmp_path).state("weights") == 9


def test_a_renamed_checkpoint_of_another_fit_is_not_used(tmp_path: Path) -> None:
    path = two_states(tmp_path)
    os.replace(path, tmp_path / "likelier-cd34.checkpoint")
    journal = opened(tmp_path, "cd34")
    assert not journal.resumed and "written by another fit" in journal.problem


def test_a_damaged_file_never_takes_the_place_of_the_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = two_states(tmp_path)
    path.write_bytes(b"junk")
    journal = opened(tmp_path)
    moves = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: moves.append(Path(b).name) or replace(a, b))
    journal.keep("weights", 3)
    assert moves == [path.name]
    journal.keep("weights", 4)
    assert moves[1:] == [f"{path.name}.previous", path.name]


def test_the_previous_file_is_found_where_a_kill_came_between_the_renames(tmp_path: Path) -> None:
    path = two_states(tmp_path)
    path.with_name(f"{path.name}.previous").unlink()
    os.replace(path, path.with_name(f"{path.name}.previous"))
    journal = opened(tmp_path)
    assert journal.state("weights") == 2 and journal.problem == ""
    journal.keep("weights", 3)
    assert opened(tmp_path).state("weights") == 3


CHILD = """
import sys
import numpy as np
from likelier.files.journal import Journal

journal = Journal.open(sys.argv[1], "ab12", {})
journal.record("scales", np.arange(50.0))
rng = np.random.default_rng(0)
step = 0
while True:
    journal.keep("weights", {"step": step, "weights": np.full(20_000, float(step))})
    print(step, flush=True)
    step += 1
"""


def test_a_kill_at_any_moment_leaves_one_of_the_last_two_states(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for trial in range(6):
        folder = tmp_path / str(trial)
        output = tmp_path / f"{trial}.txt"
        with open(output, "wb") as stdout:
            child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=stdout)
            try:
                while output.stat().st_size < 8 * (trial + 1):
                    assert child.poll() is None
                    time.sleep(0.01)
                time.sleep(float(rng.uniform(0.0, 0.05)))
            finally:
                child.send_signal(signal.SIGKILL)
                child.wait()
        last = int(output.read_text().split()[-1])
        journal = opened(folder)
        state = journal.state("weights")
        assert journal.problem == "" and state["step"] in (last, last + 1)
        assert (state["weights"] == state["step"]).all() and journal.has("scales")
        assert {file.suffix for file in folder.iterdir()} <= {".checkpoint", ".previous"}


def test_a_kill_between_any_two_system_calls_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dying(name: str) -> Any:
        original = getattr(os, name)

        def call(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return original(*arguments)

        return call

    journal = opened(tmp_path)
    journal.keep("weights", 0)
    journal.keep("weights", 1)
    step, left = 1, 1000
    for name in ("replace", "fsync"):
        monkeypatch.setattr(os, name, dying(name))
    for calls in [0, 1, 2, 3] * 2:
        left = calls
        with pytest.raises(Killed):
            journal.keep("weights", step + 1)
        left = 1000
        found = opened(tmp_path)
        assert found.state("weights") in (step, step + 1) and found.problem == ""
        step = found.state("weights") + 1
        found.keep("weights", step)
        journal = found


# -- folders that cannot be written -----------------------------------------------------------


def full_disk(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_full_disk_leaves_the_file_and_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    journal = opened(tmp_path)
    journal.keep("weights", 1)
    before = journal.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(archive.os, call, full_disk)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            journal.keep("weights", 2)
            journal.record("weights", 3)
    (warning,) = caught
    assert warning.category is RuntimeWarning and "\n" not in str(warning.message)
    assert f"in {tmp_path} cannot be changed (No space left on device)" in str(warning.message)
    assert journal.path.read_bytes() == before and os.listdir(tmp_path) == [journal.path.name]
    journal.keep("certificate", 4)  # there is room again
    again = opened(tmp_path)
    assert again.result("weights") == 3 and again.state("certificate") == 4


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rename_that_fails_leaves_a_file_that_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    journal = opened(tmp_path)
    journal.keep("weights", 1)
    replace, calls = os.replace, []

    def fails(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == failing:
            full_disk()
        replace(*arguments)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.warns(RuntimeWarning, match="the fit goes on"):
        journal.keep("weights", 2)
    assert opened(tmp_path).state("weights") == 1
    journal.keep("weights", 3)
    assert opened(tmp_path).state("weights") == 3


def test_a_read_only_folder_leaves_the_file_and_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*arguments: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    journal = opened(tmp_path)
    journal.keep("weights", 1)
    with monkeypatch.context() as patch:  # as for everybody but root
        patch.setattr(archive.os, "access", lambda path, mode: not mode & os.W_OK)
        patch.setattr(Path, "unlink", read_only)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            journal.keep("weights", 2)
            journal.finish()
    (warning,) = caught
    assert "No permission to write in the folder" in str(warning.message)
    assert opened(tmp_path).state("weights") == 1


def test_a_folder_that_vanished_is_made_again_or_reported(tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    journal = opened(tmp_path / "outer" / "inner")
    journal.keep("weights", 1)
    journal.path.unlink()
    journal.path.parent.rmdir()
    journal.keep("weights", 2)
    assert opened(tmp_path / "outer" / "inner").state("weights") == 2
    journal.path.unlink()
    journal.path.parent.rmdir()
    (tmp_path / "outer").rmdir()
    with pytest.warns(RuntimeWarning, match="No such file or directory"):
        journal.keep("weights", 3)


def test_folders_that_cannot_be_made_are_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"outer does not exist; create it first"):
        opened(tmp_path / "outer" / "inner")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="name a folder"):
        opened(tmp_path / "file")
    with pytest.raises(ValueError, match="letters and digits"):
        opened(tmp_path, "../up")


def test_finishing_without_a_file_is_silent(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(tmp_path / "never").finish()
