"""Carry rows, weights and commands between parts of a run: `channels` defines the calls, the others implement them."""
