"""Torch networks, and what makes them fast: flat parameters and numpy."""

from __future__ import annotations

from ding_like.model.encoder import ConvEncoder, FCEncoder, build_encoder
from ding_like.model.flat_params import FlatParams
from ding_like.model.layers import DiscreteHead, DuelingHead, build_mlp, init_orthogonal
from ding_like.model.numpy_networks import numpy_forward
from ding_like.model.q_networks import C51DQN, DQN, DRQN, FQF, IQN, QRDQN, RainbowDQN
from ding_like.model.qac import PDQN, ContinuousQAC, DiscreteQAC
from ding_like.model.vac import PG, PPG, VAC, GaussianHead, RecurrentVAC
from ding_like.utils.registries import lazy_exports

# Imported on first use. Names are DI-engine's; where ours differs, both are there.
_HOMES = {
    "DecisionTransformer": "ding_like.model.dt",
    "DistributionHead": "ding_like.model.layers:DiscreteHead",
    "QAC": "ding_like.model.qac:ContinuousQAC",
    "COMA": "ding_like.model.mixing",
    "QMIX": "ding_like.model.mixing",
    "QMix": "ding_like.model.mixing:QMIX",
    "QTRAN": "ding_like.model.mixing",
    "QTran": "ding_like.model.mixing:QTRAN",
    "VDN": "ding_like.model.mixing",
    "WQMIX": "ding_like.model.mixing",
    "WQMix": "ding_like.model.mixing:WQMIX",
    "TeamDiscreteQAC": "ding_like.model.team",
    "TeamQAC": "ding_like.model.team",
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
    "RainbowHead": "use DuelingHead, with num_points and linear=NoisyLinear of ding_like.model.layers",
    "RegressionHead": "use ContinuousQAC, which has heads of its own",
    "ReparameterizationHead": "use GaussianHead",
    "create_model": "use MODEL_REGISTRY.build(cfg.type, **the other keys) of ding_like.utils",
}

__all__ = [
    "C51DQN",
    "DQN",
    "DRQN",
    "FQF",
    "IQN",
    "PDQN",
    "PG",
    "PPG",
    "QRDQN",
    "VAC",
    "ContinuousQAC",
    "ConvEncoder",
    "DiscreteHead",
    "DiscreteQAC",
    "DuelingHead",
    "FCEncoder",
    "FlatParams",
    "GaussianHead",
    "RainbowDQN",
    "RecurrentVAC",
    "build_encoder",
    "build_mlp",
    "init_orthogonal",
    "numpy_forward",
    *_HOMES,
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
