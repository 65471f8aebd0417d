"""Benchmarks: ratios against a peer or a physical limit in one run. `make bench` runs all and writes RESULTS.md."""
