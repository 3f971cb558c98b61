"""Print figures about the shape of the source: how much, how long, how deep, how often.

``python tools/shape.py [SRC]`` prints one figure a line in a fixed order, so that two runs can be
compared by ``diff``; ``--list`` adds what was counted, ``--trace`` the files that the fit of a
kernel machine goes through. Only the text of the source is read, except by ``--trace``.

Figures are to be read together: merging files or deleting docstrings to meet one is no progress.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONG_FILE, LONG_FUNCTION = 400, 40
LEAST_SAME = 4  # statements; today no two functions of six are the same
LEAST_NEAR, SHARE_NEAR = 6, 0.7
NOT_SHAPE = ("ctx", "annotation", "returns", "type_comment")
ENGINES, FITTING = "engines", "fitting"
NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Figure = tuple[str, int, list[str]]


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    words = _parser().parse_args(arguments)
    figures = list(source_figures(Package.read(words.source)))
    if words.trace:
        figures += trace_figures(words.source)
    for name, value, found in figures:
        print(f"{name}: {value}")
        if words.list:
            for line in found:
                print(f"    {line}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "source", nargs="?", type=Path, default=ROOT / "src", help="folder that holds the package"
    )
    parser.add_argument("--list", action="store_true", help="list what was counted")
    parser.add_argument("--trace", action="store_true", help="fit a kernel machine and watch it")
    return parser


# -- the source ------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    """A file: its dotted name, text and syntax tree; what its names stand for."""

    name: str
    path: str
    text: str
    tree: ast.Module
    is_package: bool

    @cached_property
    def imports(self) -> dict[str, str]:
        """Names that are imported -> their dotted names, wherever in the file that happens."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    found[item.asname or item.name.split(".")[0]] = (
                        item.name if item.asname else item.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                home = self._home(node)
                for item in node.names:
                    found[item.asname or item.name] = f"{home}.{item.name}"
        return found

    def _home(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        above = node.level - 1 if self.is_package else node.level
        return ".".join([*parts[: len(parts) - above], *filter(None, [node.module])])

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """All functions and methods, with their qualified names, in the order of the file."""
        return list(_functions(self.tree, ""))

    @cached_property
    def folder(self) -> str:
        """First folder below the package; empty for files beside ``__init__.py``."""
        parts = self.path.split("/")
        return parts[1] if len(parts) > 2 else ""


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


@dataclass(frozen=True)
class Package:
    """All modules of a package by dotted name, and its classes."""

    name: str
    modules: dict[str, Module]
    _ancestries: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, source: Path) -> Package:
        """Read the only package in a folder."""
        inside = sorted(path.parent for path in source.glob("*/__init__.py"))
        if len(inside) != 1:
            raise SystemExit(f"{source} holds {len(inside)} packages, and one was expected")
        modules = {}
        for path in sorted(inside[0].rglob("*.py")):
            parts = list(path.relative_to(source).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            text = path.read_text(encoding="utf-8")
            where = path.relative_to(source).as_posix()
            modules[name] = Module(name, where, text, ast.parse(text), is_package)
        return cls(inside[0].name, modules)

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes by dotted name."""
        return {
            f"{module.name}.{node.name}": node
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
        }

    def resolve(self, module: Module, node: ast.expr) -> str:
        """Dotted name of what an expression stands for, re-exports followed; empty if unknown."""
        if isinstance(node, ast.Subscript):
            return self.resolve(module, node.value)
        if isinstance(node, ast.Name):
            local = f"{module.name}.{node.id}"
            return local if local in self.classes else self._followed(module.imports.get(node.id))
        if isinstance(node, ast.Attribute):
            owner = self.resolve(module, node.value)
            return self._followed(f"{owner}.{node.attr}") if owner else ""
        return ""

    def _followed(self, name: str | None, steps: int = 10) -> str:
        if not name or name in self.classes or not steps:
            return name or ""
        home, _, last = name.rpartition(".")
        there = self.modules[home].imports.get(last) if home in self.modules else None
        return self._followed(there, steps - 1) if there and there != name else name

    def ancestry(self, name: str) -> list[str]:
        """Own classes of a class's ancestry, itself first, each once."""
        if name not in self._ancestries:
            found = [name]
            for base in self._bases(name):
                found += [above for above in self.ancestry(base) if above not in found]
            self._ancestries[name] = found
        return self._ancestries[name]

    def depth(self, name: str) -> int:
        """Length of the longest way up through own classes, itself counted."""
        return 1 + max((self.depth(base) for base in self._bases(name)), default=0)

    def _bases(self, name: str) -> list[str]:
        module = self.modules[name.rpartition(".")[0]]
        bases = [self.resolve(module, base) for base in self.classes[name].bases]
        return [base for base in bases if base in self.classes and base != name]

    @cached_property
    def public_classes(self) -> list[str]:
        """Classes that the package exports, by dotted name, sorted by their last part."""
        top = self.modules[self.name]
        names = dict(top.imports)
        homes, exported = _assigned(top.tree, "_HOME"), _assigned(top.tree, "__all__")
        if isinstance(homes, dict):
            names |= {name: f"{home}.{name}" for name, home in homes.items()}
        listed = exported if isinstance(exported, list | tuple) else names
        found = {self._followed(names.get(name, f"{self.name}.{name}")) for name in listed}
        return sorted(found & self.classes.keys(), key=lambda name: name.rpartition(".")[2])


def _assigned(tree: ast.Module, name: str) -> Any:
    """Value of a module's variable, where that is a literal."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                return ast.literal_eval(getattr(node, "value", None) or ast.Constant(None))
            except ValueError:
                return None
    return None


# -- figures ---------------------------------------------------------------------------


def source_figures(package: Package) -> Iterator[Figure]:
    """All figures that need no more than the text."""
    yield from _size_figures(package)
    yield from _class_figures(package)
    sites = engine_sites(package)
    yield f"engine construction sites outside {FITTING}/ and {ENGINES}/", len(sites), sites
    same = similar_pairs(bodies(package, LEAST_SAME), 1.0)
    title = f"pairs of functions of {LEAST_SAME} or more statements that differ in names only"
    yield title, len(same), same
    near = similar_pairs(bodies(package, LEAST_NEAR), SHARE_NEAR)
    title = f"pairs of near-identical functions of {LEAST_NEAR} or more statements"
    yield title, len(near), near


def _size_figures(package: Package) -> Iterator[Figure]:
    modules = list(package.modules.values())
    kinds = [line_kinds(module) for module in modules]
    for kind in ("code", "import", "docstring", "comment"):
        yield f"{kind} lines", sum(found[kind] for found in kinds), []
    lengths = {module.path: len(module.text.splitlines()) for module in modules}
    yield "lines in all", sum(lengths.values()), []
    yield "files", len(modules), []
    long = [f"{path} {length}" for path, length in lengths.items() if length > LONG_FILE]
    yield f"files above {LONG_FILE} lines", len(long), long
    functions = [(module, name, node) for module in modules for name, node in module.functions]
    yield "functions and methods", len(functions), []
    tall = [
        f"{module.path}:{node.lineno} {name} {height(node)}"
        for module, name, node in functions
        if height(node) > LONG_FUNCTION
    ]
    yield f"functions above {LONG_FUNCTION} lines", len(tall), tall
    bare = [
        f"{module.path}:{node.lineno} {name} {height(node) - _docstring_height(node)}"
        for module, name, node in functions
        if height(node) - _docstring_height(node) > LONG_FUNCTION
    ]
    yield f"functions above {LONG_FUNCTION} lines without their docstrings", len(bare), bare


def _class_figures(package: Package) -> Iterator[Figure]:
    names = list(package.classes)
    yield "classes", len(names), []
    most = max(names, key=lambda name: len(package.ancestry(name)), default="")
    chain = package.ancestry(most) if most else []
    yield "most own classes in one ancestry, itself counted", len(chain), chain
    depth = max((package.depth(name) for name in names), default=0)
    yield "longest chain of own classes, one deriving from the next", depth, []
    for name in package.public_classes:
        ancestry = package.ancestry(name)
        counts = [_n_methods(package.classes[above]) for above in ancestry]
        found = [f"{above} {n}" for above, n in zip(ancestry, counts, strict=True)]
        yield f"methods of {name.rpartition('.')[2]}", sum(counts), found
    for name in package.public_classes:
        parameters = constructor_parameters(package, name)
        yield f"constructor parameters of {name.rpartition('.')[2]}", len(parameters), parameters


def _n_methods(node: ast.ClassDef) -> int:
    return sum(isinstance(item, Function) for item in node.body)


def line_kinds(module: Module) -> dict[str, int]:
    """Count lines of code, imports, docstrings and comments; blank lines are none of these."""
    docstrings, imports = set[int](), set[int]()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= _span(node)
        elif (text := _docstring(node)) is not None:
            docstrings |= _span(text)
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        lines = set(range(token.start[0], token.end[0] + 1))
        if token.type == tokenize.COMMENT:
            comments |= lines
        elif token.type not in NOT_CODE:
            code |= lines
    code -= docstrings
    return {
        "code": len(code - imports),
        "import": len(imports),
        "docstring": len(docstrings),
        "comment": len(comments - code - imports),
    }


def _docstring(node: ast.AST) -> ast.stmt | None:
    """Return the statement that is the docstring of a module, class or function."""
    if not isinstance(node, ast.Module | ast.ClassDef | Function) or not node.body:
        return None
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first if isinstance(first.value.value, str) else None
    return None


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def height(node: Function) -> int:
    """Lines of a function, decorators not counted."""
    return len(_span(node))


def _docstring_height(node: Function) -> int:
    text = _docstring(node)
    return 0 if text is None else len(_span(text))


def constructor_parameters(package: Package, name: str) -> list[str]:
    """Parameters of the constructor that a class has or inherits, or the fields of a dataclass."""
    for above in package.ancestry(name):
        node = package.classes[above]
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                arguments = item.args
                return [a.arg for a in [*arguments.posonlyargs, *arguments.args][1:]] + [
                    a.arg for a in arguments.kwonlyargs
                ]
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            annotated = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            fields = [a for a in annotated if "ClassVar" not in ast.unparse(a.annotation)]
            return [ast.unparse(item.target) for item in fields]
    return []


# -- engines ---------------------------------------------------------------------------


def engine_sites(package: Package) -> list[str]:
    """Places outside ``engines/`` and ``fitting/`` where rows get an engine.

    Counted are calls of a class that is defined in ``engines/`` and derives from ``Engine``, and
    calls of helpers: functions that call such a class and whose annotation says that they return
    an engine. A helper is recognised where its module's function, or a method ``self.helper`` of a
    related class, is called; a function inside another, which is handed on, wherever its name is.
    """
    kinds = {
        name
        for name in package.classes
        if name.startswith(f"{package.name}.{ENGINES}.")
        and any(above.endswith(".Engine") for above in package.ancestry(name))
    }
    outside = [m for m in package.modules.values() if m.folder not in (ENGINES, FITTING)]
    helpers = {
        f"{module.name}.{name}"
        for module in outside
        for name, node in module.functions
        if node.returns is not None
        and re.fullmatch(r"\W*\w*Engine\W*", ast.unparse(node.returns))
        and any(package.resolve(module, call.func) in kinds for call in _calls(node))
    }
    found = []
    for module in outside:
        for owner, call in _owned_calls(module):
            is_direct = package.resolve(module, call.func) in kinds
            if is_direct or _is_helper(package, module, owner, call.func, helpers):
                name = ast.unparse(call.func)
                found.append((module.path, call.lineno, f"{module.path}:{call.lineno} {name}"))
    return [text for _, _, text in sorted(found)]


def _is_helper(
    package: Package, module: Module, owner: str, called: ast.expr, helpers: set[str]
) -> bool:
    """Whether a call in a class (``owner``, or empty) is one of the helpers."""
    resolved = package.resolve(module, called)
    if resolved in helpers or f"{module.name}.{resolved}" in helpers:
        return True
    if isinstance(called, ast.Name) and called.id not in module.imports:
        return f"{module.name}.{called.id}" in helpers
    if not isinstance(called, ast.Attribute):
        return False
    for helper in helpers:
        home, _, name = helper.rpartition(".")
        if name != called.attr:
            continue
        if home not in package.classes and home not in package.modules:  # inside a function
            return True
        if any({home, owner} <= set(package.ancestry(one)) for one in package.classes):
            return True
    return False


def _owned_calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """All calls of a module, with the class that each is in."""

    def visit(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.Call]]:
        if isinstance(node, ast.ClassDef):
            owner = f"{module.name}.{node.name}"
        if isinstance(node, ast.Call):
            yield owner, node
        for child in ast.iter_child_nodes(node):
            yield from visit(child, owner)

    return visit(module.tree, "")


def _calls(node: ast.AST) -> list[ast.Call]:
    return [child for child in ast.walk(node) if isinstance(child, ast.Call)]


# -- repetition ------------------------------------------------------------------------


@dataclass(frozen=True)
class Body:
    """The statements of a function as shapes: kinds of nodes, no names, values or annotations."""

    place: str
    path: str
    lines: range
    shapes: list[str]

    def holds(self, other: Body) -> bool:
        """Whether the other function is defined inside this one."""
        return self.path == other.path and other.lines[0] in self.lines


def bodies(package: Package, least: int) -> list[Body]:
    """Functions of so many statements, however deep; constructors that only store are left out."""
    found = []
    for module in package.modules.values():
        for name, node in module.functions:
            body = node.body[1:] if _docstring(node) else node.body
            nodes = [child for item in body for child in _statements(item)]
            if len(nodes) >= least and not _only_stores(body):
                place = f"{module.path}:{node.lineno} {name}"
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                found.append(Body(place, module.path, lines, [_skeleton(n) for n in nodes]))
    return found


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements at or below a node, in the order of the text."""
    if isinstance(node, ast.stmt):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _statements(child)


def similar_pairs(found: list[Body], share: float) -> list[str]:
    """Pairs of functions that have this share of their statements in common, in the same order."""
    counted = [(body, Counter(body.shapes)) for body in found]
    pairs = []
    for (one, ones), (other, others) in combinations(counted, 2):
        enough = share * (len(one.shapes) + len(other.shapes)) / 2
        if min(len(one.shapes), len(other.shapes)) < enough or one.holds(other):
            continue
        if (ones & others).total() < enough:
            continue
        matcher = SequenceMatcher(None, one.shapes, other.shapes, autojunk=False)
        if matcher.ratio() >= share:
            pairs.append(f"{one.place}  {other.place}")
    return sorted(pairs)


def _only_stores(body: list[ast.stmt]) -> bool:
    """Whether all statements are of the form ``self.name = name``."""
    return all(
        isinstance(item, ast.Assign)
        and isinstance(item.targets[0], ast.Attribute)
        and isinstance(item.value, ast.Name)
        for item in body
    )


def _skeleton(value: Any) -> str:
    """Shape of a part of a syntax tree; of a compound statement only its head."""
    if isinstance(value, list):
        return "[" + ",".join(_skeleton(item) for item in value) + "]"
    if isinstance(value, ast.Constant):
        return type(value.value).__name__
    if not isinstance(value, ast.AST):
        return ""
    parts = [
        _skeleton(part)
        for name, part in ast.iter_fields(value)
        if name not in NOT_SHAPE and not _is_block(part)
    ]
    return f"{type(value).__name__}({' '.join(filter(None, parts))})"


def _is_block(part: Any) -> bool:
    blocks = ast.stmt | ast.ExceptHandler | ast.match_case
    return isinstance(part, list) and bool(part) and isinstance(part[0], blocks)


# -- one fit, watched ------------------------------------------------------------------


def trace_figures(source: Path, n_rows: int = 3_000) -> list[Figure]:
    """Files of the package that a fit of `BayesianKernelClassifier` runs functions of."""
    sys.path.insert(0, str(source.resolve()))
    import numpy as np

    import likelier

    if source.resolve() not in Path(str(likelier.__file__)).resolve().parents:
        raise SystemExit(f"likelier was imported from {likelier.__file__}, not from {source}")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 10))
    y = (X[:, 0] * X[:, 1] + rng.normal(size=n_rows) > 0.0).astype(int)
    likelier.BayesianKernelClassifier(random_state=0).fit(X[:100], y[:100])  # imports happen here
    home = str(Path(str(likelier.__file__)).resolve().parent)
    calls: dict[str, set[str]] = defaultdict(set)

    def watch(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # not the body of a module or class
        if event == "call" and is_function and code.co_filename.startswith(home):
            calls[code.co_filename].add(f"{code.co_qualname}:{code.co_firstlineno}")

    model = likelier.BayesianKernelClassifier(random_state=0)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = sorted(Path(path).relative_to(home).as_posix() for path in calls)
    own = [f for f in files if "kernel_machine/" in f]
    n_functions = sum(len(functions) for functions in calls.values())
    return [
        ("files of its own family that one kernel fit crosses", len(own), own),
        ("files that one kernel fit crosses", len(files), files),
        ("functions that one kernel fit calls", n_functions, []),
    ]


if __name__ == "__main__":
    main()
