"""The project's own files: pins, quoted code, the cache of compiled code, the README."""

from __future__ import annotations

import os
import re
import textwrap
import tomllib
from pathlib import Path

import docs_sync
import numba_cache
import pytest
from tests.estimators.expected_failures import EXPECTED_FAILURES

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[0-9][A-Za-z0-9.!+]*)")


def canonical(name: str) -> str:
    """Spell a package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Return the pinned version of every package in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [PIN.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(matches), "constraints.txt holds only name==version lines, for old pips"
    return {canonical(match["name"]): match["version"] for match in matches if match}


def test_everything_the_project_asks_for_is_pinned() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = [
        *PYPROJECT["project"]["dependencies"],
        *(r for extra in extras.values() for r in extra),
    ]
    names = {canonical(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in wanted}
    assert "numpy" in names
    assert names - {"likelier"} <= pins().keys()


def test_no_package_index_is_named_anywhere() -> None:
    files = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run")]
    files += [path for path in (ROOT / "tools").iterdir() if path.is_file()]
    assert len(files) > 5
    assert [path.name for path in files if "://" in path.read_text(encoding="utf-8")] == []


def test_the_readme_states_how_many_checks_are_expected_to_fail() -> None:
    declared = sum(len(checks) for checks in EXPECTED_FAILURES.values())
    stated = re.search(r"(\d+) declared exceptions?\b", README)
    assert stated, "the README states the number of declared exceptions"
    assert int(stated[1]) == declared


# -- code quoted in the documentation ------------------------------------------------------


@every_page
def test_quoted_code_is_the_source(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert page == docs_sync.synced(page), "run `make docs-sync`"


@every_page
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("part", ["losses/", "engines/", "glm/"])
def test_the_page_on_extending_quotes_real_parts(part: str) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    assert f"<!-- from src/likelier/{part}" in page


def test_a_changed_definition_changes_the_page(tmp_path: Path) -> None:
    source = tmp_path / "part.py"
    page = "Text.\n\n<!-- from part.py:Part.twice -->\n```python\n```\nMore.\n"
    quoted = "# Why.\n@staticmethod\ndef twice(x):\n    return 2 * x\n"
    source.write_text(f"class Part:\n{textwrap.indent(quoted, '    ')}\n    y = 1\n")
    fresh = docs_sync.synced(page, tmp_path)
    assert fresh == page.replace("```python\n", f"```python\n{quoted}")
    source.write_text(source.read_text().replace("2 * x", "x + x"))
    assert docs_sync.synced(fresh, tmp_path) == fresh.replace("2 * x", "x + x")


def test_a_docstring_can_be_quoted(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text('"""One.\n\nTwo.\n"""\nx = 1\n')
    page = "<!-- from part.py:__doc__ -->\n```text\nold\n```\n"
    assert docs_sync.synced(page, tmp_path) == page.replace("old", "One.\n\nTwo.")


def test_the_list_of_modules_has_files_before_folders(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name, text in {"z.py": "Last.\n\nMore.", "inner/a.py": "Inner.", "b.py": "First."}.items():
        (tmp_path / name).write_text(f'"""{text}"""\n')
    assert (
        docs_sync.modules(tmp_path) == "b.py        First.\nz.py        Last.\ninner/a.py  Inner.\n"
    )


def test_a_quote_that_cannot_be_found_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="nothing is called 'Gone'"):
        docs_sync.synced("<!-- from part.py:Gone -->\n```python\n```\n", tmp_path)
    with pytest.raises(ValueError, match="has no block"):
        docs_sync.synced("<!-- from part.py:x -->\nno block\n", tmp_path)


# -- the cache of compiled code --------------------------------------------------------------


def test_another_source_gets_another_cache(tmp_path: Path) -> None:
    file = tmp_path / "src" / "part.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    first = numba_cache.cache_dir(tmp_path)
    assert numba_cache.cache_dir(tmp_path) == first
    file.write_text("x = 2\n")
    assert numba_cache.cache_dir(tmp_path) != first
    file.rename(file.with_name("other.py"))
    assert len({first, numba_cache.cache_dir(tmp_path)}) == 2


def test_only_the_newest_caches_are_kept(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for age in range(numba_cache.KEPT + 3):
        folder = tmp_path / ".cache" / f"numba-{age}"
        folder.mkdir(parents=True)
        (folder / "code.nbc").touch()
        os.utime(folder, (1e9 - age, 1e9 - age))
    newest = numba_cache.cache_dir(tmp_path)
    kept = {path.name for path in (tmp_path / ".cache").iterdir()}
    assert kept == {newest.name, *(f"numba-{age}" for age in range(numba_cache.KEPT - 1))}


def test_compiled_code_of_these_tests_is_in_such_a_cache() -> None:
    numba = pytest.importorskip("numba")
    assert Path(numba.config.CACHE_DIR).name.startswith("numba-")
