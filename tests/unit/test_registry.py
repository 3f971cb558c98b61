"""Saving and loading: everything comes back, nothing damaged ever does."""

import hashlib
import json
import os
import stat
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

from likelier import losses
from likelier.files.archive import replacing
from likelier.registry import load, read_manifest, register_savable, save


@register_savable
class Holder(BaseEstimator):
    """A stand-in estimator: one parameter, any fitted attributes."""

    def __init__(self, value=None, random_state=None):
        self.value = value
        self.random_state = random_state

    def fit(self, X, y=None, sample_weight=None):
        self.mean_ = np.mean(X, axis=0)
        return self


class Stranger(BaseEstimator):
    """An estimator nobody registered."""

    def __init__(self, value=None):
        self.value = value


@register_savable
class Pair:
    """A helper that is no estimator: stored by to_json and from_json."""

    def __init__(self, left, right):
        self.left, self.right = left, right

    def to_json(self):
        return {"left": self.left, "right": self.right}

    @classmethod
    def from_json(cls, plain):
        return cls(plain["left"], plain["right"])


def round_trip(value, folder):
    """Store a value both as a parameter and as a fitted attribute."""
    model = Holder(value)
    model.fitted_ = value
    save(model, folder / "model")
    loaded = load(folder / "model")
    assert_same(loaded.fitted_, loaded.value)
    return loaded.value


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype == object:
            assert all(
                x == y or (x != x and y != y) for x, y in zip(a.ravel(), b.ravel(), strict=True)
            )
        else:
            assert a.tobytes() == b.tobytes()
    elif isinstance(a, np.generic):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, dict):
        for x, y in zip(a.items(), b.items(), strict=True):  # the order too
            assert_same(x, y)
    else:
        assert repr(a) == repr(b)  # tells -0.0 from 0.0, and nan equals nan


# -- what comes back ------------------------------------------------------------------------

SCALARS = [
    None,
    True,
    False,
    0,
    -(10**30),
    0.1,
    -0.0,
    1e-320,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "naïve \u2028 \ud800 \0",
    np.float64(0.1),
    np.float32("nan"),
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.str_("text"),
    np.complex128(1 - 2j),
]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars(value, tmp_path):
    assert_same(round_trip(value, tmp_path), value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        (),
        {},
        [1, (2.5, [None]), {"a": (True,), "": []}],
        {"z": 1, "a": 2, "array": {"name": "x"}},  # keys that look like tags
        {0: 1.0, -1: 2.0, 0.5: 3.0, True: 4.0, "1": 5.0},  # as class_weight may be
        {np.int64(3): "x", np.str_("a"): "y"},
        {"nested": {"deep": [np.arange(3), {"x": np.float32(2)}]}},
    ],
    ids=repr,
)
def test_containers(value, tmp_path):
    assert_same(round_trip(value, tmp_path), value)


DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("dtype", [*DTYPES, ">f8", ">i4", ">c16", "U3", ">U3", "S5"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3, 4)])
def test_arrays_keep_dtype_shape_and_bits(dtype, shape, tmp_path):
    bits = np.random.default_rng(0).integers(0, 2, size=shape)
    array = bits.astype(dtype)
    assert_same(round_trip(array, tmp_path), array)


def test_text_arrays(tmp_path):
    for array in (
        np.array(["setosa", "", "çà\U0001f600"]),
        np.array([["a", "b"], ["c", "d"]], dtype=object),
        np.array(["a", None, float("nan"), 3, True], dtype=object),
        np.array([], dtype=object),
    ):
        assert_same(round_trip(array, tmp_path), array)


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_layout_is_kept(order, tmp_path):
    array = np.asarray(np.arange(12.0).reshape(3, 4), order=order)
    loaded = round_trip(array, tmp_path)
    assert_same(loaded, array)
    assert loaded.flags.c_contiguous == array.flags.c_contiguous
    assert loaded.flags.writeable


def test_a_strided_view(tmp_path):
    array = np.arange(24.0).reshape(4, 6)[::-2, 1::2]
    assert_same(round_trip(array, tmp_path), array)


def test_one_array_under_two_names_stays_one(tmp_path):
    model = Holder(None)
    model.coef_ = np.arange(3.0)
    model.same_ = model.coef_
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.same_ is loaded.coef_
    model.same_ = model.coef_.copy()
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.same_ is not loaded.coef_


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_csr(kind, dtype, tmp_path):
    matrix = kind(np.array([[0, 1, 0], [2, 0, 3], [0, 0, 0]], dtype=dtype))
    loaded = round_trip_csr = Holder(matrix)
    save(round_trip_csr, tmp_path / "m")
    loaded = load(tmp_path / "m").value
    assert type(loaded) is kind
    for part in ("data", "indices", "indptr"):
        assert_same(getattr(loaded, part), getattr(matrix, part))
    assert loaded.shape == matrix.shape


@pytest.mark.parametrize("name", sorted(losses.LOSSES))
def test_every_loss(name, tmp_path):
    loss = losses.make_loss(name)
    assert round_trip(loss, tmp_path) == loss


def test_loss_parameters(tmp_path):
    assert round_trip(losses.Quantile(tau=0.9), tmp_path) == losses.Quantile(tau=0.9)
    assert round_trip(losses.Huber(delta=np.float64(2)), tmp_path) == losses.Huber(delta=2.0)


def test_nested_estimators_and_helpers(tmp_path):
    inner = Holder(np.arange(2)).fit(np.eye(3))
    model = Holder([inner, Pair("x", np.arange(3.0))])
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert_same(loaded.value[0].mean_, inner.mean_)
    assert_same(loaded.value[0].value, inner.value)
    assert_same(loaded.value[1].right, np.arange(3.0))
    assert loaded.value[1].left == "x"


def test_parameter_and_fitted_attributes_do_not_mix(tmp_path):
    model = Holder(value="v").fit(np.eye(2))
    save(model, tmp_path / "m")
    manifest = read_manifest(tmp_path / "m")
    assert manifest["class"] == "Holder"
    assert set(manifest["params"]) == {"value", "random_state"}
    assert set(manifest["fitted"]) == {"mean_"}
    assert load(tmp_path / "m").get_params() == model.get_params()


def test_metadata_requests_survive_and_callbacks_are_left_out(tmp_path):
    model = Holder()
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
    model._skl_callbacks = [object()]
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.get_metadata_routing().fit.requests == {"sample_weight": True}
    assert not hasattr(loaded, "_skl_callbacks")


def test_equal_models_give_equal_files(tmp_path):
    for name in ("a", "b"):
        save(Holder({"x": np.arange(4), "y": "text"}).fit(np.eye(3)), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_file_is_a_plain_zip(tmp_path):
    save(Holder(np.arange(4)), tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as file:
        assert file.namelist() == ["manifest.json", "arrays.safetensors"]
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}
        manifest = json.loads(file.read("manifest.json"))
        arrays = file.read("arrays.safetensors")
    assert manifest["arrays_sha256"] == hashlib.sha256(arrays).hexdigest()


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | npst.arrays(
        st.one_of(npst.floating_dtypes(sizes=(16, 32, 64)), npst.integer_dtypes()),
        npst.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=plain_values)
def test_any_nested_value(value, tmp_path):
    assert_same(round_trip(value, tmp_path), value)


# -- what cannot be stored ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda x: x, "Functions cannot be stored without pickle"),
        ({(1, 2): "a"}, "is not text or a number"),
        ({"a", "b"}, "it is a set"),
        (b"bytes", "it is a bytes"),
        (object(), "it is a object"),
        (sparse.coo_array(np.eye(2)), "tocsr"),
        (np.ma.masked_array([1, 2]), "numpy.asarray"),
        (np.zeros(2, dtype="M8[s]"), "no portable form"),
        (np.zeros(2, dtype=[("a", "f8")]), "no portable form"),
        (np.array([object()]), "it is a object"),
        ([np.random.default_rng(0)], "int as random_state"),
        (Stranger(), "register_savable"),
        (LogisticRegression(), "register_savable"),
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_unsavable_values_are_named_and_leave_no_file(value, words, tmp_path):
    with pytest.raises(TypeError, match=words) as caught:
        save(Holder({"deep": value}), tmp_path / "m")
    assert "Holder.value.deep" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_contains_itself(tmp_path):
    model = Holder()
    model.value = [model]
    with pytest.raises(TypeError, match="contains itself"):
        save(model, tmp_path / "m")


@pytest.mark.parametrize("model", [Stranger(), LogisticRegression(), 3, "model", Pair(1, 2)])
def test_only_registered_estimators_are_models(model, tmp_path):
    with pytest.raises(TypeError, match="not on the list of savable classes"):
        save(model, tmp_path / "m")


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_a_generator_parameter_becomes_none_with_a_warning(make, tmp_path):
    with pytest.warns(UserWarning, match=r"Holder\.random_state .* Pass an int"):
        save(Holder(random_state=make(0)), tmp_path / "m")
    assert load(tmp_path / "m").random_state is None
    model = Holder()
    model.rng_ = make(0)
    with pytest.raises(TypeError, match="int as random_state"):
        save(model, tmp_path / "m")


def test_registering(tmp_path):
    with pytest.raises(TypeError, match="neither"):
        register_savable(dict)
    with pytest.raises(ValueError, match="class of likelier"):
        register_savable(type("TableEncoding", (BaseEstimator,), {}))


# -- atomic writing -------------------------------------------------------------------------


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m"
    save(Holder("old"), path)
    before = path.read_bytes()
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def interrupt(*_):
                raise KeyboardInterrupt

            patch.setattr(os, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                save(Holder("new"), path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def test_replacing_removes_what_was_begun(tmp_path):
    path = tmp_path / "out"

    def write_half_of_it():
        with replacing(path) as temporary:
            temporary.write_text("half")
            assert temporary.parent == tmp_path
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write_half_of_it()
    assert list(tmp_path.iterdir()) == []


def test_replacing_refuses_bad_targets(tmp_path):
    with pytest.raises(FileNotFoundError, match="create it first"):
        save(Holder(), tmp_path / "absent" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(Holder(), tmp_path)


def test_permissions_and_links(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    save(Holder(1), real)
    real.chmod(0o600)
    link.symlink_to(real)
    save(Holder(2), link)
    assert link.is_symlink()
    assert load(real).value == 2
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_no_warning_without_a_generator(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(Holder(random_state=3), tmp_path / "m")
    assert load(tmp_path / "m").random_state == 3
