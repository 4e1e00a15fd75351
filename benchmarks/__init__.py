"""Measure the package, and peers beside it, in one run."""
