"""Carry rows, weights and commands over HTTP and files."""
