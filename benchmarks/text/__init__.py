"""Text features: speed, whole pipelines and memory of a stream.

``python -m benchmarks.text`` measures everything and writes ``docs/benchmarks/text.md`` with its
pictures; every part also runs alone, for example ``python -m benchmarks.text speed --sets webkb``.
"""
