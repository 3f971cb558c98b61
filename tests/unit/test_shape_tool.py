"""`tools/shape.py` on a package of a few lines."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import shape

FILES = {
    "__init__.py": '''
        """A package."""

        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from toy.models import Model

        __all__ = ["Late", "Model"]
        _HOME = {"Model": "toy.models", "Late": "toy.models"}
    ''',
    "base.py": '''
        """Concepts."""


        class Engine:
            """Where rows live."""


        class Part:
            """Something."""

            def shared(self):
                """Say so."""
                return (
                    "text of one value"
                )
    ''',
    "engines/__init__.py": """
        from toy.engines.local import LocalEngine as LocalEngine
    """,
    "engines/local.py": """
        from ..base import Engine


        class LocalEngine(Engine):
            def again(self):
                return LocalEngine()
    """,
    "fitting/__init__.py": "",
    "fitting/open.py": """
        from toy.engines import LocalEngine

        here = LocalEngine()
    """,
    "models.py": '''
        """Models."""

        import toy.engines as places
        from toy import base
        from toy.engines import LocalEngine


        def make(rows) -> LocalEngine:
            # a comment
            return LocalEngine(rows)


        class Middle(base.Part):
            def __init__(self, a, *, b=1, c=2):
                self.a = a
                self.b = b
                self.c = c
                self.d = b

            def fit(self, X):
                total = 0
                for row in X:
                    total += row
                    if row > 3:
                        break
                self.total = make(total)
                return self


        class Model(Middle):
            def fit(self, rows):
                count = 9
                for item in rows:
                    count += item
                    if item > 1.5:
                        break
                self.count = places.LocalEngine(count)
                return self


        class Late(Model):
            pass
    ''',
}


@pytest.fixture
def figures(tmp_path: Path) -> dict[str, tuple[int, list[str]]]:
    """Figures of the toy package, by name."""
    for name, text in FILES.items():
        path = tmp_path / "src" / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    package = shape.Package.read(tmp_path / "src")
    return {name: (value, found) for name, value, found in shape.source_figures(package)}


def test_lines_are_counted_by_kind(figures: dict[str, tuple[int, list[str]]]) -> None:
    counts = {kind: figures[f"{kind} lines"][0] for kind in ("import", "docstring", "comment")}
    assert counts == {"import": 8, "docstring": 6, "comment": 1}
    init, base, engines = 3, 6, 3
    fitting, models = 1, 2 + 6 + 8 + 1 + 8 + 2
    assert figures["code lines"][0] == init + base + engines + fitting + models
    assert figures["files"][0] == len(FILES)


def test_classes_are_followed_across_modules(figures: dict[str, tuple[int, list[str]]]) -> None:
    assert figures["most own classes in one ancestry, itself counted"][1] == [
        "toy.models.Late",
        "toy.models.Model",
        "toy.models.Middle",
        "toy.base.Part",
    ]
    assert figures["longest chain of own classes, one deriving from the next"][0] == 4
    assert figures["methods of Model"][0] == 4
    assert figures["constructor parameters of Late"] == (3, ["a", "b", "c"])


def test_engines_are_found_outside_their_folders(
    figures: dict[str, tuple[int, list[str]]],
) -> None:
    _, sites = figures["engine construction sites outside fitting/ and engines/"]
    assert [site.split()[1] for site in sites] == ["LocalEngine", "make", "places.LocalEngine"]


def test_functions_that_differ_in_names_are_a_pair(
    figures: dict[str, tuple[int, list[str]]],
) -> None:
    same = figures["pairs of functions of 4 or more statements that differ in names only"]
    near = figures["pairs of near-identical functions of 6 or more statements"]
    assert same[0] == 0  # one calls a function, the other an attribute
    assert near[0] == 1
    assert "Middle.fit" in near[1][0] and "Model.fit" in near[1][0]


def test_the_output_has_one_figure_a_line(
    figures: dict[str, tuple[int, list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape.main([str(tmp_path / "src")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{name}: {value}" for name, (value, _) in figures.items()]
