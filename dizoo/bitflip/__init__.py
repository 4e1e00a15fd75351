"""Flip bits until a goal is reached, a reward that random actions hardly ever find."""
