"""A network that is trained beside others: its flat parameters, its target and its optimizer."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from ding_like.model.flat_params import FlatParams
from ding_like.model.optimizer import FlatOptimizer
from ding_like.types import Config, State


class TrainedNetwork:
    """Network with its flat parameters, its target network, if it has one, and its optimizer."""

    def __init__(self, network: Any, learn: Config, *, learning_rate: float, has_target: bool = True) -> None:
        self.network = network
        # Any: a target that is there is called like the network.
        self.target: Any = copy.deepcopy(network) if has_target else None
        self.params = FlatParams(network)
        self.target_params = None if self.target is None else FlatParams(self.target)
        self.optimizer = FlatOptimizer.from_config(self.params, learn, learning_rate=learning_rate)

    def backward(self, loss: Tensor) -> Tensor:
        """Fill the gradients of this network; see `FlatParams.backward`."""
        return self.params.backward(loss)

    def move_target(self, theta: float) -> None:
        """Move the target a share `theta` of the way to the network."""
        assert self.target_params is not None, "this network was made without a target"
        self.target_params.lerp_from(self.params, theta)

    def state_dict(self) -> State:
        """Return optimizer and target; the network itself is saved with the policy's model."""
        own = {"optimizer": self.optimizer.state_dict()}
        return own if self.target is None else {**own, "target": self.target.state_dict()}

    def load_state_dict(self, state: State | None) -> None:
        """Take over what `state_dict` returned; None (weights alone) makes the target equal, with a fresh optimizer."""
        if self.target is not None:
            self.target.load_state_dict(self.network.state_dict() if state is None else state["target"])
        if state is not None:
            self.optimizer.load_state_dict(state["optimizer"])
