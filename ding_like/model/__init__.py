"""Hold the torch networks and what makes them fast: flat parameters and a numpy forward."""

from __future__ import annotations

from typing import Any

from ding_like.model.c51 import C51DQN
from ding_like.model.dqn import DQN
from ding_like.model.encoder import ConvEncoder, FCEncoder, build_encoder
from ding_like.model.flat_params import FlatParams
from ding_like.model.head import DiscreteHead, DistributionHead, DuelingHead
from ding_like.model.init import init_orthogonal
from ding_like.model.mlp import build_mlp
from ding_like.model.numpy_forward import numpy_forward
from ding_like.model.qrdqn import QRDQN
from ding_like.utils.lazy_exports import lazy_export

# Imported on first use. Names are DI-engine's; where ours differs, both are there.
_HOMES = {
    "ContinuousQAC": "ding_like.model.continuous_qac",
    "DRQN": "ding_like.model.drqn",
    "DiscreteQAC": "ding_like.model.discrete_qac",
    "FQF": "ding_like.model.fqf",
    "GaussianHead": "ding_like.model.vac",
    "IQN": "ding_like.model.iqn",
    "PDQN": "ding_like.model.pdqn",
    "PG": "ding_like.model.pg",
    "PPG": "ding_like.model.ppg",
    "QAC": "ding_like.model.continuous_qac:ContinuousQAC",
    "QMIX": "ding_like.model.qmix",
    "QMix": "ding_like.model.qmix:QMIX",
    "RainbowDQN": "ding_like.model.rainbow",
    "RainbowHead": "ding_like.model.rainbow",
    "RecurrentVAC": "ding_like.model.recurrent_vac",
    "VAC": "ding_like.model.vac",
    "model_wrap": "ding_like.model.wrappers",
}
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "ACER": "use VAC with policy 'impala'",
    "BDQ": "use VAC with several discrete actions at once",
    "IMPALAConvEncoder": "use ConvEncoder",
    "MAVAC": "use VAC with the env 'joint_petting_zoo', or QMIX",
    "MultiHead": "use VAC, whose action_shape may be a list",
    "QuantileHead": "use IQN or QRDQN, which have heads of their own",
    "RegressionHead": "use ContinuousQAC, which has heads of its own",
    "ReparameterizationHead": "use GaussianHead",
    "create_model": "use MODEL_REGISTRY.build(cfg.type, **the other keys) of ding_like.utils",
}

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
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    return lazy_export(__name__, _HOMES, name, instead=_INSTEAD)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
