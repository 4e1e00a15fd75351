"""Bring weights to whoever acts with them: `extract` says what, `encode` how they look, and each transport how they go.

A source of any kind becomes a flat state, tensors by name; a flat state becomes one vector of numbers for each dtype,
whose layout a few lines of JSON describe. Every transport carries these two, and each end passes the contract suite of
`WeightPublisher` or `WeightReader`.
"""
