"""Policies of teams as configs of DI-engine name them: `policy.multi_agent=True` of the policy of a single agent."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ding_like.config.tree import Tree, get_path, set_path

_logger = logging.getLogger(__name__)

# DI-engine's policy, with `multi_agent=True` -> the policy of teams here.
OF_TEAMS: Mapping[str, str] = {
    "ppo": "mappo",
    "sac": "masac",
    "discrete_sac": "masac_discrete",
    "sac_discrete": "masac_discrete",
    "ddpg": "maddpg",
    "td3": "matd3",
    "dqn": "idqn",
    "madqn": "idqn",
}
# Those that are of teams without the key.
_ALWAYS = ("madqn",)
# What DI-engine says of a team's sizes in policy.model.
_SIZES = ("agent_num", "obs_shape", "agent_obs_shape", "global_obs_shape", "action_shape")


def read_multi_agent(main: Tree, create: Tree, *, quiet: bool) -> None:
    """Change a config of a team in DI-engine's form to the policy of teams here, in place.

    Sizes in `policy.model` are left out: the env says them. A type without such a policy stays as it is.
    """
    policy, chosen = main.get("policy"), get_path(create, "policy.type")
    stem = chosen.removesuffix("_command") if isinstance(chosen, str) else ""
    is_asked = isinstance(policy, dict) and policy.get("multi_agent") is True
    if not isinstance(policy, dict) or stem not in OF_TEAMS or not (is_asked or stem in _ALWAYS):
        return
    policy.pop("multi_agent", None)
    set_path(create, "policy.type", OF_TEAMS[stem])
    model = policy.get("model")
    sizes = [key for key in _SIZES if isinstance(model, dict) and "type" not in model and key in model]
    for key in sizes:
        del model[key]
    if not quiet:
        why = "as policy.multi_agent is True" if is_asked else f"the counterpart of '{stem}'"
        listed = ", ".join(f"policy.model.{key}" for key in sizes)
        of_env = f"; the env says {listed}" if sizes else ""
        _logger.info("read as policy.type='%s', %s%s", OF_TEAMS[stem], why, of_env)
