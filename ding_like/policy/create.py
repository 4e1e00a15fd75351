"""Find and build the policy that a config names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding_like.errors import ConfigError, DingError
from ding_like.policy.base import Policy
from ding_like.policy.required import PAGE
from ding_like.utils.registries import POLICY_REGISTRY
from ding_like.utils.user_code import raised_at, told

_MODES = ("learn_mode", "collect_mode", "eval_mode")


def create_policy(cfg: Mapping[str, Any], **kwargs: Any) -> Policy:
    """Build the policy that `cfg.type` names.

    Raises RegistryError for an unknown name, and ConfigError for a class that is no policy and where code of the
    user's own raises, with its line.
    """
    cls = get_policy_cls(cfg)
    missing = [name for name in _MODES if not hasattr(cls, name)]
    if missing:
        raise ConfigError(
            f"policy '{cfg['type']}' is {cls.__name__}, which has no {', '.join(missing)}: derive it from "
            f"ding_like.policy.Policy, or from a policy that is like it; {PAGE} shows one."
        )
    try:
        return cls(cfg=cfg, **kwargs)
    except DingError:
        raise  # it says what is wrong
    except Exception as error:  # a user's policy may raise anything; errors of our code keep their traceback
        if not raised_at(error):
            raise
        raise ConfigError(f"policy '{cfg['type']}' ({cls.__name__}) cannot be built: {told(error)}.") from error


def get_policy_cls(cfg: Mapping[str, Any]) -> type[Policy]:
    """Return the class that `cfg.type` names; raises RegistryError for an unknown name."""
    cls: type[Policy] = POLICY_REGISTRY.get(cfg["type"], cfg.get("import_names", ()))
    return cls
