"""Benchmarks: ratios against a peer or a physical limit in the same run. `make bench` runs all and writes RESULTS.md."""
