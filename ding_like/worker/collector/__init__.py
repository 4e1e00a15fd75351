"""Collectors: one rollout loop, and thin classes that decide when to stop and what to return."""
