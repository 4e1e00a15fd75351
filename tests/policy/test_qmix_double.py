"""With `double`, the online network chooses each agent's next action and the target network says what it is worth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ding_like.config import deep_merge
from ding_like.data.batch import TransitionBatch
from ding_like.policy.qmix import QMIXPolicy

AGENTS, OBS, STATE, ACTIONS, ROWS = 2, 3, 4, 3, 6


@pytest.mark.parametrize("double", [False, True])
def test_the_online_network_chooses_only_with_double(double: bool) -> None:
    torch.manual_seed(0)
    obs_shape = {"agents": [AGENTS, OBS], "state": STATE}
    model = dict(obs_shape=obs_shape, action_shape=[ACTIONS] * AGENTS, hidden_size_list=[8], mixer_embed_size=4)
    policy = QMIXPolicy(deep_merge(QMIXPolicy.default_config(), {"model": model, "double": double}))
    online, target = policy.get_attribute("model"), policy._target_model
    with torch.no_grad():  # what one likes best the other likes least
        for parameter in online.head.parameters():
            parameter.neg_()
    rng = np.random.default_rng(0)
    agents = rng.normal(size=(ROWS, AGENTS, OBS)).astype(np.float32)
    state = rng.normal(size=(ROWS, STATE)).astype(np.float32)
    batch = TransitionBatch(
        {
            "obs/agents": agents,
            "obs/state": state,
            "next_obs/agents": agents,
            "next_obs/state": state,
            "action": np.zeros((ROWS, AGENTS), np.int64),
            "reward": np.zeros(ROWS, np.float32),
            "terminated": np.zeros(ROWS, bool),
        }
    )

    info, _ = policy.grad(batch)

    obs = {"agents": torch.from_numpy(agents), "state": torch.from_numpy(state)}
    with torch.no_grad():
        worth, liked = target.q(obs), (online if double else target).q(obs)
        best = worth.gather(2, liked.argmax(dim=2, keepdim=True)).squeeze(2)
        expected = 0.99 * target.mix(best, obs)
        assert not torch.equal(online.q(obs).argmax(dim=2), target.q(obs).argmax(dim=2)), "they choose differently"
    np.testing.assert_allclose(info["target_q_value"].numpy(), expected.numpy(), rtol=1e-5)
