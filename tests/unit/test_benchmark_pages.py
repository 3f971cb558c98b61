"""Pages of the benchmarks: parts measured at different times stand side by side."""

from __future__ import annotations

from benchmarks.common import publish, read_json, results_folder, write_json, write_page


def test_sections_that_were_not_measured_stay(tmp_path):
    page = tmp_path / "page.md"
    write_page(page, "# Title\n\nold head\n\n## One\n\n1\n\n## Three\n\n3\n\n### Part\n\n3b\n")
    write_page(page, "# Title\n\nnew head\n\n## One\n\n1 again\n\n## Two\n\n2\n")
    assert page.read_text() == (
        "# Title\n\nnew head\n\n## One\n\n1 again\n\n## Two\n\n2\n\n"
        "## Three\n\n3\n\n### Part\n\n3b\n"
    )


def test_a_new_first_section_comes_first(tmp_path):
    page = tmp_path / "page.md"
    write_page(page, "# T\n\n## Two\n\n2\n")
    write_page(page, "# T\n\n## One\n\n1\n")
    assert page.read_text() == "# T\n\n## One\n\n1\n\n## Two\n\n2\n"


def test_published_measurements_are_where_a_new_clone_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.common.CACHE", tmp_path / "cache")
    monkeypatch.setattr("benchmarks.common.DOCS", tmp_path / "docs")
    write_json(results_folder("x") / "speed.json", {"case": 1})
    publish(results_folder("x"), tmp_path / "docs", "x")
    monkeypatch.setattr("benchmarks.common.CACHE", tmp_path / "other")
    assert read_json(results_folder("x") / "speed.json") == {"case": 1}
    assert not results_folder("x", quick=True).exists()


def test_the_linear_page_names_what_ran_on_another_processor(tmp_path, monkeypatch):
    from benchmarks.linear import __main__ as command
    from benchmarks.linear.writer import _elsewhere

    def run(cpu, *cases):
        monkeypatch.setattr(command, "machine_facts", lambda packages: {"cpu": cpu})
        measured = [(key, {"speedup": 1}) for key in cases]
        command._measure("threads", lambda: iter(measured), tmp_path)
        parts = ("speed", "throughput", "threads", "stability", "coverage", "memory", "machine")
        return _elsewhere({part: read_json(tmp_path / f"{part}.json") for part in parts})

    assert run("old", "a", "b") == ""
    write_json(tmp_path / "threads.json", {"a": {"speedup": 1}, "b": {"speedup": 1}})  # unnamed
    assert "Measured on old: threads of a." in run("new", "b")
    assert run("new", "a") == ""
