"""The learner and its hooks."""
