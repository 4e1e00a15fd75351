"""Run several learners as one: what each has a share of, and how they keep step."""
