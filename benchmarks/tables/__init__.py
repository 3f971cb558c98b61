"""Benchmark of the command line on real tables, with no option but the target."""
