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
# Policies that are of teams whatever `multi_agent` says: one under another name, and those of its own name.
_ALWAYS = ("madqn", "vdn", "qmix", "wqmix", "qtran", "coma", "happo")
# Those whose model has lists of hidden layers, of the actor and of the critics.
_CENTRAL = ("maddpg", "matd3", "masac", "masac_discrete")
# What DI-engine says of a team's sizes in policy.model.
_SIZES = ("agent_num", "obs_shape", "agent_obs_shape", "global_obs_shape", "action_shape")


def read_multi_agent(main: Tree, create: Tree, *, quiet: bool) -> None:
    """Change a config of a team in DI-engine's form to the policy of teams here, in place.

    Sizes in `policy.model` are left out: the env says them. A type without such a policy stays as it is.
    """
    policy, chosen = main.get("policy"), get_path(create, "policy.type")
    stem = chosen.removesuffix("_command") if isinstance(chosen, str) else ""
    name = OF_TEAMS.get(stem, stem)
    is_asked = isinstance(policy, dict) and policy.get("multi_agent") is True
    if not isinstance(policy, dict) or not (stem in _ALWAYS or (is_asked and stem in OF_TEAMS)):
        return
    policy.pop("multi_agent", None)
    given = policy.get("model")
    model: Tree = given if isinstance(given, dict) and "type" not in given else {}
    # Of a policy that has the same name in both, only their form is of one agent.
    is_theirs = name != stem or any(key in model for key in ("agent_num", "agent_obs_shape", "global_obs_shape"))
    sizes = [key for key in _SIZES if is_theirs and key in model]
    for key in sizes:
        del model[key]
    if name in _CENTRAL:
        _name_layers(model)
    if isinstance(learn := policy.get("learn"), dict):
        _name_weights(name, learn)
    if name != stem:
        set_path(create, "policy.type", name)
    if quiet or not (sizes or name != stem):
        return
    why = "as policy.multi_agent is True" if is_asked else f"of '{stem}'"
    of_env = f"; the env says {', '.join(f'policy.model.{key}' for key in sizes)}" if sizes else ""
    _logger.info("read as policy.type='%s', %s%s", name, why, of_env)


def _name_weights(name: str, learn: Tree) -> None:
    """Rename the weights of DI-engine's losses as the policies of teams name them; other values stay unknown keys."""
    if name == "wqmix":
        if "w" in learn and "alpha" not in learn:  # with both, "w" is an unknown key
            learn["alpha"] = learn.pop("w")
        if learn.get("wqmix_ow") in (True, False):
            learn["weighting"] = "optimistically" if learn.pop("wqmix_ow") else "centrally"
    if name == "qtran" and learn.get("td_weight") == 1:  # the other weights are beside it
        del learn["td_weight"]


def _name_layers(model: Tree) -> None:
    """Put the hidden layers of DI-engine's actors and critics where those of a team stand.

    There a head has `head_layer_num` layers of `head_hidden_size` behind those of the encoder, which is one such layer
    where no list is given.
    """
    if model.get("action_space") == "discrete":  # the env's
        del model["action_space"]
    encoder = model.pop("encoder_hidden_size_list", ())
    for part in ("actor", "critic"):
        size, layers = model.pop(f"{part}_head_hidden_size", None), model.pop(f"{part}_head_layer_num", 1)
        behind = [] if size is None else [size] * (int(layers) + (not encoder))
        if encoder or behind:
            model.setdefault(f"{part}_hidden_size_list", [*encoder, *behind])
