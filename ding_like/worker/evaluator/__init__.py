"""Evaluators of a policy on fresh episodes."""
