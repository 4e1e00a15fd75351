"""Hold the torch networks and their flat parameters."""

from ding_like.model.dqn import DQN
from ding_like.model.encoder import ConvEncoder, FCEncoder, build_encoder
from ding_like.model.flat_params import FlatParams
from ding_like.model.head import DiscreteHead, DuelingHead
from ding_like.model.init import init_orthogonal
from ding_like.model.mlp import build_mlp

__all__ = [
    "DQN",
    "ConvEncoder",
    "DiscreteHead",
    "DuelingHead",
    "FCEncoder",
    "FlatParams",
    "build_encoder",
    "build_mlp",
    "init_orthogonal",
]
