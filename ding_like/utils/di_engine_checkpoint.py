"""Read checkpoints of DI-engine: its networks hold the same layers as ours, under other names."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from ding_like.errors import CheckpointError
from ding_like.types import State

logger = logging.getLogger(__name__)

# Names that only DI-engine's networks have.
_THEIRS = re.compile(r"(actor_|critic_)?encoder\.(init|mid)\.|head\.[AVQ]\.\d|actor_head\.(Q\.|log_sigma_param)")
# Its actor-critic holds every layer twice, the second time as a part of these.
_TWICE = re.compile(r"(actor|critic)\.[01]\.")
# A layer of its networks -> the stack of ours that has such layers in the same order.
_STACKS = tuple(
    (re.compile(pattern), stack)
    for pattern, stack in (
        (r"((?:actor_|critic_)?encoder)\.(?:init|main\.\d+)$", r"\1.main"),
        (r"head\.A\.\d+\.\d+$", r"head.advantage.main"),
        (r"head\.V\.\d+\.\d+$", r"head.value.main"),
        (r"head\.Q\.\d+\.\d+$", r"head.main"),
        (r"actor_head\.(?:Q\.\d+|main)\.\d+$", r"actor_head.main"),
        (r"critic_head\.(?:main\.\d+|last)$", r"critic_head.main"),
    )
)
_LAYERS = {"actor_head.log_sigma_layer": "actor_head.sigma_layer"}
_SIGMA = "actor_head.log_sigma"
# What a checkpoint holds beside networks, and means the same here.
_COUNTERS = ("last_iter", "last_step")
_NETWORKS = ("model", "target_model")


def from_di_engine(state: State, own: Callable[[], State]) -> State:
    """Return a checkpoint of DI-engine with the names of our networks; any other as it is.

    `own` returns the state of what loads it. Networks of DQN (C51 and QR-DQN are like it) and VAC come over, and the
    counts of iterations and env steps; the optimizer begins afresh, as its moments have another order. A layer that has
    no place here keeps its name, so that loading names it as unexpected.

    Raises CheckpointError for a network on pictures, which computes something else from the same weights, and for a
    file without the networks of a policy.
    """
    model = state.get("model")
    if model is None and "model" in own():
        raise CheckpointError(
            f"the checkpoint has no 'model', the weights of a policy; it has {_some(state)}. Expected a file that "
            "ding_like saved, such as ckpt/ckpt_best.pth.tar of an experiment. The weights of a network with the "
            "layers of policy.model become one by torch.save({'model': network.state_dict()}, FILE)."
        )
    if not isinstance(model, Mapping) or not any(_THEIRS.match(str(name)) for name in model):
        return state
    known = own()
    read: State = {name: state[name] for name in _COUNTERS if name in state}
    for name in _NETWORKS:
        if isinstance(state.get(name), Mapping) and isinstance(known.get("model"), Mapping):
            _refuse_pictures(state[name])
            read[name] = renamed(state[name], known["model"])
    logger.info("the checkpoint was made by DI-engine: its weights are taken over; the optimizer begins afresh")
    return read


def renamed(theirs: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a network of DI-engine with the names of ours, whose state is `own`.

    Layers of a stack correspond by their order. The values are tensors.
    """
    places = _stacked(own)
    used: dict[str, int] = {}
    layer_of: dict[str, str] = {}
    read: dict[str, Any] = {}
    for name, value in theirs.items():
        if _TWICE.match(name):
            continue
        if name == f"{_SIGMA}_param":
            read[_SIGMA] = value.reshape(-1)
            continue
        layer, _, leaf = name.rpartition(".")
        if layer not in layer_of:
            layer_of[layer] = _next_layer(layer, places, used)
        read[f"{layer_of[layer]}.{leaf}"] = value
    if _SIGMA in own and _SIGMA not in read and "actor_head.sigma_layer.weight" not in read:
        # A sigma that is fixed is a number of the config there.
        read[_SIGMA] = own[_SIGMA]
    return read


def _some(state: State) -> str:
    names = [f"'{name}'" for name in state]
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])]) or "nothing"


def _refuse_pictures(theirs: Mapping[str, Any]) -> None:
    """Raise CheckpointError for an encoder with convolutions."""
    if any(re.match(r"(actor_|critic_)?encoder\.mid\.", name) for name in theirs):
        raise CheckpointError(
            "the checkpoint is of a network of DI-engine for pictures. Its encoder's dense layer has no activation "
            "and ours has one, so the same weights would give other values: train anew, or give the policy a model of "
            "your own with DI-engine's layers."
        )


def _stacked(own: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the layers of each stack of ours, in their order: "encoder.main" -> ["encoder.main.0", ...]."""
    places: dict[str, list[str]] = {}
    for name in own:
        layer = name.rpartition(".")[0]
        layers = places.setdefault(layer.rpartition(".")[0], [])
        if layer not in layers:
            layers.append(layer)
    return places


def _next_layer(layer: str, places: Mapping[str, list[str]], used: dict[str, int]) -> str:
    """Return the name of the next free layer of the stack that one of DI-engine's belongs to, else its own name."""
    for pattern, stack in _STACKS:
        if found := pattern.match(layer):
            place = found.expand(stack)
            number = used.get(place, 0)
            used[place] = number + 1
            layers = places.get(place, [])
            return layers[number] if number < len(layers) else layer
    return _LAYERS.get(layer, layer)
