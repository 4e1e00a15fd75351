"""Environments and the configs that learn them, one folder each."""
