"""Tianshou's updates, with the networks and buffers that its examples make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.contenders import updates_work as work  # isort: skip  (pins the threads first)

import gymnasium
import numpy as np
from tianshou.algorithm.modelfree.c51 import C51, C51Policy
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.fqf import FQF, FQFPolicy
from tianshou.algorithm.modelfree.iqn import IQN, IQNPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQN, QRDQNPolicy
from tianshou.algorithm.modelfree.rainbow import RainbowDQN
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.utils.net.common import Net, Recurrent
from tianshou.utils.net.discrete import (
    FractionProposalNetwork,
    FullQuantileFunction,
    ImplicitQuantileNetwork,
    NoisyLinear,
)
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode

ACTIONS = gymnasium.spaces.Discrete(work.NUM_ACTIONS)
SHAPES: dict[str, Any] = dict(state_shape=work.OBS_SIZE, action_shape=work.NUM_ACTIONS)


def _common() -> dict[str, Any]:
    return dict(
        optim=AdamOptimizerFactory(lr=work.LEARNING_RATE),
        gamma=work.GAMMA,
        n_step_return_horizon=work.NSTEP,
        target_update_freq=work.TARGET_UPDATE_FREQ,
    )


def _filled(buffer: Any) -> Any:
    for step in work.lane_steps():
        rows = Batch(
            obs=step.obs,
            act=step.action,
            rew=step.reward,
            terminated=step.terminated,
            truncated=np.zeros(work.NUM_LANES, bool),
            obs_next=step.next_obs,
            info=Batch(),
        )
        buffer.add(rows, buffer_ids=np.arange(work.NUM_LANES))
    return buffer


def _updates(algorithm: Any, buffer: Any) -> Callable[[int], None]:
    _filled(buffer)

    def update(count: int) -> None:
        # What a trainer does around its updates.
        with policy_within_training_step(algorithm.policy), torch_train_mode(algorithm):
            for _ in range(count):
                algorithm.update(buffer=buffer, sample_size=work.BATCH_SIZE)

    return update


def _uniform(**kwargs: Any) -> Any:
    return VectorReplayBuffer(work.ROWS, work.NUM_LANES, **kwargs)


def _features() -> Any:
    return Net(state_shape=work.OBS_SIZE, action_shape=work.HIDDEN[-1], hidden_sizes=work.HIDDEN[:-1])


def dqn() -> Callable[[int], None]:
    """Return double DQN."""
    policy = DiscreteQLearningPolicy(model=Net(**SHAPES, hidden_sizes=work.HIDDEN), action_space=ACTIONS)
    return _updates(DQN(policy=policy, is_double=True, **_common()), _uniform())


def _categorical(net: Any) -> Any:
    return C51Policy(net, ACTIONS, num_atoms=work.NUM_ATOMS, v_min=work.V_MIN, v_max=work.V_MAX)


def c51() -> Callable[[int], None]:
    """Return C51."""
    net = Net(**SHAPES, hidden_sizes=work.HIDDEN, softmax=True, num_atoms=work.NUM_ATOMS)
    return _updates(C51(policy=_categorical(net), **_common()), _uniform())


def rainbow() -> Callable[[int], None]:
    """Return Rainbow: a plain encoder, and two streams of one noisy layer each."""
    stream = {"linear_layer": NoisyLinear}
    net = Net(
        **SHAPES, hidden_sizes=work.HIDDEN, softmax=True, num_atoms=work.NUM_ATOMS, dueling_param=(stream, stream)
    )
    buffer = PrioritizedVectorReplayBuffer(work.ROWS, work.NUM_LANES, alpha=work.ALPHA, beta=work.BETA)
    return _updates(RainbowDQN(policy=_categorical(net), **_common()), buffer)


def qrdqn() -> Callable[[int], None]:
    """Return QR-DQN."""
    net = Net(**SHAPES, hidden_sizes=work.HIDDEN, num_atoms=work.NUM_QUANTILES)
    policy = QRDQNPolicy(model=net, action_space=ACTIONS)
    return _updates(QRDQN(policy=policy, num_quantiles=work.NUM_QUANTILES, **_common()), _uniform())


def iqn() -> Callable[[int], None]:
    """Return IQN: as many fractions for acting, prediction and target."""
    net = ImplicitQuantileNetwork(
        preprocess_net=_features(), action_shape=work.NUM_ACTIONS, num_cosines=work.NUM_COSINES
    )
    count = work.NUM_FRACTIONS
    policy = IQNPolicy(
        model=net, action_space=ACTIONS, sample_size=count, online_sample_size=count, target_sample_size=count
    )
    return _updates(IQN(policy=policy, num_quantiles=count, **_common()), _uniform())


def fqf() -> Callable[[int], None]:
    """Return FQF."""
    features = _features()
    net = FullQuantileFunction(preprocess_net=features, action_shape=work.NUM_ACTIONS, num_cosines=work.NUM_COSINES)
    fractions = FractionProposalNetwork(work.NUM_FRACTIONS, work.HIDDEN[-1])
    policy = FQFPolicy(model=net, fraction_model=fractions, action_space=ACTIONS)
    algorithm = FQF(
        policy=policy,
        fraction_optim=AdamOptimizerFactory(lr=work.LEARNING_RATE),
        num_fractions=work.NUM_FRACTIONS,
        **_common(),
    )
    return _updates(algorithm, _uniform())


def drqn() -> Callable[[int], None]:
    """Return double DQN over an LSTM, which is given the last steps of each row and learns from the last of them."""
    net = Recurrent(layer_num=1, **SHAPES, hidden_layer_size=work.LSTM_SIZE)
    policy = DiscreteQLearningPolicy(model=net, action_space=ACTIONS)
    return _updates(DQN(policy=policy, is_double=True, **_common()), _uniform(stack_num=work.SEQUENCE_STEPS))


if __name__ == "__main__":
    work.main(
        {"dqn": dqn, "c51": c51, "rainbow": rainbow, "qrdqn": qrdqn, "iqn": iqn, "fqf": fqf, "r2d2": drqn},
        ("tianshou", "gymnasium"),
    )
