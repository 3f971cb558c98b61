"""Keep what ``*.md`` quotes from the source equal to the source.

Two kinds of line announce a quoted block; the block below it is never edited by hand:

``<!-- from src/likelier/losses/__init__.py:Hinge -->``  the definition of ``Hinge`` in that file
                                                (``Class.method`` names a method, ``__doc__``
                                                the file's docstring)
``<!-- modules of src/likelier -->``            the files below that folder, each with the
                                                first line of its docstring

Without arguments the blocks are written anew; with ``--check`` a difference is an error.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUOTE = re.compile(
    r"(?P<marker><!-- (?P<kind>from|modules of) (?P<what>\S+) -->\n)"
    r"```(?P<language>\w+)\n(?P<code>.*?)```\n",
    re.DOTALL,
)
MARKER = re.compile(r"<!-- (?:from|modules of) ")


def definition(source: str, name: str) -> str:
    """Return the text of a class, function or variable, with decorators and comments above it."""
    module = ast.parse(source)
    if name == "__doc__":
        return (ast.get_docstring(module) or "") + "\n"
    scope: list[ast.stmt] = module.body
    for part in name.split("."):
        found = [node for node in scope if part in _names(node)]
        if not found:
            raise ValueError(f"nothing is called {name!r} in the quoted file")
        node = found[-1]
        scope = getattr(node, "body", [])
    lines = source.splitlines()
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    while first > 1 and lines[first - 2].lstrip().startswith("#"):
        first -= 1
    return textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno])) + "\n"


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def modules(folder: Path) -> str:
    """List the Python files below a folder with the first line of each docstring."""
    files = [path.relative_to(folder) for path in folder.rglob("*.py")]
    # Files before folders, and a folder's own docstring before its files.
    files.sort(key=lambda path: [(True, part) for part in path.parts[:-1]] + [(False, path.name)])
    width = max(len(path.as_posix()) for path in files)
    text = ""
    for path in files:
        docstring = ast.get_docstring(ast.parse((folder / path).read_text(encoding="utf-8"))) or ""
        summary = docstring.partition("\n")[0]
        text += f"{path.as_posix():{width}}  {summary}".rstrip() + "\n"
    return text


def synced(page: str, root: Path = ROOT) -> str:
    """Return the page with every quoted block taken from the source again."""

    def quote(match: re.Match[str]) -> str:
        if match["kind"] == "modules of":
            code = modules(root / match["what"])
        else:
            path, _, name = match["what"].partition(":")
            code = definition((root / path).read_text(encoding="utf-8"), name)
        return f"{match['marker']}```{match['language']}\n{code}```\n"

    if len(MARKER.findall(page)) != len(QUOTE.findall(page)):
        raise ValueError("a '<!-- from ... -->' or '<!-- modules of ... -->' line has no block")
    return QUOTE.sub(quote, page)


def main(arguments: list[str]) -> int:
    """Rewrite the pages, or with ``--check`` only name those that differ; return the status."""
    check = "--check" in arguments
    stale = []
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        page = path.read_text(encoding="utf-8")
        fresh = synced(page)
        if fresh != page:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(fresh, encoding="utf-8")
    for name in stale:
        print(f"{name}: differs from the source" if check else f"{name}: written anew")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
