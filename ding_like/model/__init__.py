"""Hold the torch networks and what makes them fast: flat parameters and a numpy forward."""

from ding_like.model.c51 import C51DQN
from ding_like.model.dqn import DQN
from ding_like.model.encoder import ConvEncoder, FCEncoder, build_encoder
from ding_like.model.flat_params import FlatParams
from ding_like.model.head import DiscreteHead, DistributionHead, DuelingHead
from ding_like.model.init import init_orthogonal
from ding_like.model.mlp import build_mlp
from ding_like.model.numpy_forward import numpy_forward
from ding_like.model.qrdqn import QRDQN

__all__ = [
    "C51DQN",
    "DQN",
    "QRDQN",
    "ConvEncoder",
    "DiscreteHead",
    "DistributionHead",
    "DuelingHead",
    "FCEncoder",
    "FlatParams",
    "build_encoder",
    "build_mlp",
    "init_orthogonal",
    "numpy_forward",
]
