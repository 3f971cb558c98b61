"""Damaged and hostile model files: always a ValueError that helps, never anything else."""

import copy
import functools
import hashlib
import io
import json
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.test_registry import Holder, assert_same

from likelier import losses
from likelier.files import archive
from likelier.registry import load, read_manifest, save

# -- damage ---------------------------------------------------------------------------------


@pytest.fixture
def small_file(tmp_path):
    """A whole model file, and its bytes."""
    path = tmp_path / "model"
    save(Holder({"a": 1.5, "b": "text"}).fit(np.eye(2)), path)
    return path, path.read_bytes()


def assert_refused(path):
    with pytest.raises(ValueError, match=r".") as caught:
        load(path)
    message = str(caught.value)
    assert type(caught.value) is ValueError
    assert str(path) in message
    return message


def test_every_single_bit_flip_is_refused(small_file):
    path, whole = small_file
    load(path)
    rng = np.random.default_rng(0)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        assert_refused(path)


def test_every_byte_replaced_is_refused(small_file):
    path, whole = small_file
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        assert_refused(path)


def test_every_truncation_is_refused(small_file):
    path, whole = small_file
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert_refused(path)


def test_additions_are_refused(small_file):
    path, whole = small_file
    for damaged in (whole + b"\0", b"\0" + whole, whole + whole, whole[:100] + b"x" + whole[100:]):
        path.write_bytes(damaged)
        assert_refused(path)


def test_damage_in_a_larger_file_is_refused(tmp_path):
    path = tmp_path / "model"
    save(Holder(np.random.default_rng(0).standard_normal((300, 200))), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(0, len(whole), size=300):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        assert_refused(path)
        path.write_bytes(whole[:position])
        assert_refused(path)
    path.write_bytes(whole)
    load(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(data, tmp_path):
    path = tmp_path / "model"
    for content in (data, b"PK\x03\x04" + data, b"PK\x03\x04" + data + archive.SEAL + b"0" * 64):
        path.write_bytes(content)
        assert_refused(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (pickle.dumps({"a": 1}), "pickle, which likelier never loads"),
        (b"PAR1" + b"\0" * 50, "Parquet"),
        (b"\x1f\x8b\x08" + b"\0" * 50, "gzip"),
        (b"a,b,c\n1,2,3\n", "text file"),
        (bytes(range(120, 200)), "of another kind"),
    ],
    ids=["empty", "pickle", "parquet", "gzip", "csv", "binary"],
)
def test_other_kinds_of_files(content, words, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(content)
    assert words in assert_refused(path)


def test_an_npz_is_not_a_model(tmp_path):
    np.savez(tmp_path / "m.npz", a=np.arange(3))
    assert "another kind" in assert_refused(tmp_path / "m.npz")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent")
    with pytest.raises(OSError, match=r"directory|denied"):
        load(tmp_path)


# -- files made by hand: what version 1 is, and what a hostile file may try -------------------


def build_file(manifest, tensors=b"\x08\0\0\0\0\0\0\0{}      ", sign=True, **zip_options):
    """Write format 1 from its description alone, without the code under test."""
    manifest = dict(manifest)
    if sign:
        manifest["arrays_sha256"] = hashlib.sha256(tensors).hexdigest()
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    members = [("manifest.json", json.dumps(manifest).encode()), ("arrays.safetensors", tensors)]
    return build_zip(members, **zip_options)


def build_zip(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.comment = b"likelier model; SHA-256 of every byte before this digest: " + b"0" * 64
        for name, data in members:
            file.writestr(name, data)
    body = buffer.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def tensors_of(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


VERSION_1 = {
    "format": 1,
    "likelier": "0.1.0",
    "class": "Holder",
    "params": {
        "random_state": 7,
        "value": {
            "dict": [
                ["floats", [1.5, {"float": "nan"}, {"float": "-inf"}]],
                ["pair", {"tuple": [None, True]}],
                ["scalar", {"scalar": ["<f4", "0000c03f"]}],
                ["names", {"array": {"shape": [2], "objects": ["a", "b"]}}],
                ["loss", {"loss": {"name": "quantile", "tau": 0.25}}],
                ["inner", {"estimator": {"class": "Holder", "params": {}, "fitted": {}}}],
                ["helper", {"object": ["Pair", {"dict": [["left", 1], ["right", 2]]}]}],
            ]
        },
    },
    "fitted": {
        "coef_": {
            "array": {"name": "coef_", "dtype": "<f8", "shape": [2, 1], "columns": False},
        },
        "text_": {
            "array": {"name": "text_", "dtype": "<U2", "shape": [1], "columns": False},
        },
        "wide_": {
            "array": {"name": "wide_", "dtype": "<i4", "shape": [1, 2], "columns": True},
        },
    },
    "routing": {"fit": {"sample_weight": True}},
}
VERSION_1_TENSORS = tensors_of(
    {
        "coef_": {"dtype": "F64", "shape": [2, 1], "data_offsets": [0, 16]},
        "text_": {"dtype": "U32", "shape": [2], "data_offsets": [16, 24]},
        "wide_": {"dtype": "I32", "shape": [2, 1], "data_offsets": [24, 32]},
    },
    struct.pack("<dd", 0.5, -2.0) + "hi".encode("utf-32-le") + struct.pack("<ii", 3, 4),
)


def test_a_file_of_format_1_still_loads(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(build_file(VERSION_1, VERSION_1_TENSORS))
    model = load(path)
    assert isinstance(model, Holder)
    assert model.random_state == 7
    assert_same(model.coef_, np.array([[0.5], [-2.0]]))
    assert_same(model.text_, np.array(["hi"]))
    assert_same(model.wide_, np.array([[3, 4]], dtype=np.int32))
    value = model.value
    assert_same(value["floats"], [1.5, float("nan"), float("-inf")])
    assert_same(value["pair"], (None, True))
    assert_same(value["scalar"], np.float32(1.5))
    assert_same(value["names"], np.array(["a", "b"], dtype=object))
    assert value["loss"] == losses.Quantile(tau=0.25)
    assert isinstance(value["inner"], Holder)
    assert value["helper"].right == 2
    assert model.get_metadata_routing().fit.requests == {"sample_weight": True}


def test_what_is_saved_now_is_format_1(tmp_path):
    """The hand-made file, loaded and saved again, describes the same thing."""
    path = tmp_path / "m"
    path.write_bytes(build_file(VERSION_1, VERSION_1_TENSORS))
    save(load(path), tmp_path / "again")
    written = read_manifest(tmp_path / "again")
    assert written["format"] == 1
    assert written["fitted"]["coef_"] == VERSION_1["fitted"]["coef_"]
    assert written["routing"] == VERSION_1["routing"]
    assert written["params"]["value"]["dict"][:5] == VERSION_1["params"]["value"]["dict"][:5]


@pytest.mark.parametrize(("ours", "advice"), [(0, "Upgrade"), (2, "Fit the model again")])
def test_a_file_of_another_format_names_who_wrote_it(tmp_path, monkeypatch, ours, advice):
    monkeypatch.setattr(archive, "FORMAT", ours)
    path = tmp_path / "m"
    path.write_bytes(build_file({**VERSION_1, "likelier": "0.3.7"}, VERSION_1_TENSORS))
    with pytest.raises(
        ValueError, match=rf"format 1, written by likelier 0\.3\.7; .*{advice}"
    ) as error:
        load(path)
    assert "\n" not in str(error.value)


def changed(**changes):
    return {**VERSION_1, "params": {}, "fitted": {}, "routing": {}, **changes}


def array_of(**changes):
    base = {"name": "coef_", "dtype": "<f8", "shape": [2, 1], "columns": False}
    return changed(fitted={"x_": {"array": {**base, **changes}}})


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (changed(format=2), "Upgrade likelier"),
        (changed(format=0), "format version"),
        (changed(format="1"), "format version"),
        (changed(format=True), "format version"),
        (changed(**{"class": "os.system"}), "does not know"),
        (changed(**{"class": "Stranger"}), "does not know"),
        (changed(**{"class": "Pair"}), "does not know"),
        (changed(**{"class": "losses"}), "does not know"),
        (changed(**{"class": ["Holder"]}), "does not know"),
        (changed(params={"future": 1}), "no parameter 'future'"),
        (changed(params=[1]), "malformed"),
        (changed(fitted={"x_": {"pickle": "abc"}}), "unknown kind 'pickle'"),
        (changed(fitted={"x_": {}}), "exactly one kind"),
        (changed(fitted={"x_": {"a": 1, "b": 2}}), "exactly one kind"),
        (changed(fitted={"x_": {"object": ["Holder", None]}}), "does not know"),
        (changed(fitted={"x_": {"object": ["Popen", None]}}), "does not know"),
        (changed(fitted={"x_": {"loss": {"name": "evil"}}}), "not known"),
        (changed(fitted={"x_": {"float": "abc"}}), "abc"),
        (changed(fitted={"x_": {"scalar": ["<f8", "00"]}}), "buffer"),
        (changed(fitted={"x_": {"scalar": ["O", "00" * 8]}}), "unknown NumPy type"),
        (changed(routing={"fit": {"nonsense": True}}), "nonsense"),
        (changed(routing={"absent": {}}), "malformed"),
        (array_of(name="other"), "missing"),
        (array_of(dtype="O"), "unknown NumPy type"),
        (array_of(dtype="<f4"), "stored as float64"),
        (array_of(dtype="<U999999999999"), "unknown NumPy type"),
        (array_of(shape=[10**18]), "reshape"),
        (array_of(shape=[-1, 1]), "not the shape"),
        (array_of(shape=["a"]), "shape"),
        (changed(fitted={"x_": {"array": {"objects": [], "shape": [10**15]}}}), "reshape"),
    ],
)
def test_well_sealed_nonsense_is_refused(manifest, words, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(build_file(manifest, VERSION_1_TENSORS))
    assert words in assert_refused(path)


def places(plain, path=()):
    """Yield the path to everything inside a nested value."""
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def test_random_edits_under_fresh_digests_load_or_are_refused(tmp_path):
    """An edit may leave a valid file; what may not happen is any error but ValueError."""
    rng = random.Random(0)
    path = tmp_path / "m"
    junk = [
        None,
        True,
        -1,
        2**70,
        1.5,
        "",
        "<f8",
        "Holder",
        [],
        {},
        {"csr": {}},
        {"dict": [[[], 1]]},
    ]
    refused = 0
    for _ in range(400):
        manifest = copy.deepcopy(VERSION_1)
        *way, last = rng.choice(list(places(manifest)))
        inner = functools.reduce(lambda part, key: part[key], way, manifest)
        inner[last] = copy.deepcopy(rng.choice(junk))
        path.write_bytes(build_file(manifest, VERSION_1_TENSORS))
        try:
            load(path)
        except ValueError:
            refused += 1
    assert 200 < refused < 400


def test_deep_nesting_is_refused(tmp_path):
    path = tmp_path / "m"
    for depth in (10, 300, 100_000):
        text = '{"format":1,"x":' + "[" * depth + "]" * depth + "}"
        path.write_bytes(build_zip([("manifest.json", text), ("arrays.safetensors", b"")]))
        assert_refused(path)
    nested = {"tuple": []}
    for _ in range(2000):
        nested = {"tuple": [nested]}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        path.write_bytes(build_file(changed(fitted={"x_": nested})))
    finally:
        sys.setrecursionlimit(limit)
    assert_refused(path)


def test_a_csr_matrix_with_wild_indices_is_refused(tmp_path):
    matrix = {
        "matrix": False,
        "shape": [1, 3],
        "data": {"name": "d", "dtype": "<f8", "shape": [1], "columns": False},
        "indices": {"name": "i", "dtype": "<i4", "shape": [1], "columns": False},
        "indptr": {"name": "p", "dtype": "<i4", "shape": [2], "columns": False},
    }
    header = {
        "d": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
        "i": {"dtype": "I32", "shape": [1], "data_offsets": [8, 12]},
        "p": {"dtype": "I32", "shape": [2], "data_offsets": [12, 20]},
    }
    path = tmp_path / "m"
    for column, refused in ((2, False), (3, True), (-1, True), (2**30, True)):
        tensors = tensors_of(header, struct.pack("<diii", 1.0, column, 0, 1))
        path.write_bytes(build_file(changed(fitted={"x_": {"csr": matrix}}), tensors))
        if refused:
            assert_refused(path)
        else:
            assert load(path).x_[0, 2] == 1.0


def test_changed_manifest_or_arrays_under_a_fresh_seal(tmp_path):
    """Someone who edits a member and seals the zip anew still meets the inner digests."""
    path = tmp_path / "m"
    save(Holder(np.arange(3.0)), path)
    with zipfile.ZipFile(path) as file:
        manifest, arrays = (file.read(name) for name in file.namelist())
    edited = manifest.replace(b'"likelier":"', b'"likelier":"9')
    path.write_bytes(build_zip([("manifest.json", edited), ("arrays.safetensors", arrays)]))
    assert "manifest does not match" in assert_refused(path)
    edited = arrays[:-1] + b"\x7f"
    path.write_bytes(build_zip([("manifest.json", manifest), ("arrays.safetensors", edited)]))
    assert "arrays do not match" in assert_refused(path)


def test_bombs_and_odd_archives_are_refused(tmp_path):
    path = tmp_path / "m"
    manifest = json.dumps({"format": 1, "x": " " * 10**7})
    bomb = [("manifest.json", manifest), ("arrays.safetensors", "")]
    path.write_bytes(build_zip(bomb, zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 50_000
    assert "compressed" in assert_refused(path)
    for members in ([], [("manifest.json", "{}")], [("a", ""), ("b", "")]):
        path.write_bytes(build_zip(members))
        assert_refused(path)
    for text in ("", "[]", "3", "{", '{"format": 1e400}', '{"format":1,"x":NaN}', "\xff"):
        path.write_bytes(build_zip([("manifest.json", text), ("arrays.safetensors", "")]))
        assert_refused(path)


@pytest.mark.parametrize("tensors", [b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}garbage"])
def test_malformed_arrays_are_refused(tensors, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(build_file(changed(), tensors))
    assert_refused(path)


def test_loading_runs_no_import_named_in_a_file(tmp_path):
    """A class name that is a module path imports nothing."""
    path = tmp_path / "m"
    path.write_bytes(build_file(changed(**{"class": "antigravity"})))
    code = f"""
import sys
from likelier.registry import load
try:
    load({str(path)!r})
except ValueError:
    pass
sys.exit("antigravity" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
