"""Deterministic simulation of a parallel run: the real coordinator, client and workers on virtual time, by a seed."""
