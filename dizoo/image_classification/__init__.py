"""Supervised learning with the same parts: a learner with hooks, and an evaluator that measures."""
