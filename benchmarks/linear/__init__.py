"""Linear models: speed, throughput, threads, stability, coverage and memory.

``python -m benchmarks.linear`` measures everything and writes ``docs/benchmarks/linear.md``
with its pictures; every part also runs alone, for example
``python -m benchmarks.linear speed --sets a9a,w8a``.
"""
