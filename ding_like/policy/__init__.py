"""Algorithms: one file each, its maths visible in it; the file's name is the registry name."""

from ding_like.policy.base import Policy, create_policy, get_policy_cls

__all__ = ["Policy", "create_policy", "get_policy_cls"]
