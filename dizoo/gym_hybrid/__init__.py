"""Envs whose actions are a choice with its parameters: stop in a target area."""
