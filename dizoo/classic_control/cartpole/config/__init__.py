"""Configs that learn CartPole."""
