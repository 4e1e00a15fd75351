"""A policy of the user's own, which says nothing of what is saved, resumes exactly: interrupted is as straight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding_like.entry import resume_pipeline, serial_pipeline
from ding_like.policy import Policy
from ding_like.utils.registries import POLICY_REGISTRY

pytestmark = pytest.mark.usefixtures("in_tmp", "no_pictures")


class _Actor:
    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def act(self, obs: Any, *, lanes: Any, is_first: Any, rng: np.random.Generator, **setting: Any) -> Any:
        q = self._model(torch.from_numpy(obs)).detach().numpy()
        return {"action": (q + 0.1 * rng.gumbel(size=q.shape)).argmax(axis=1)}

    def reset(self, lanes: Any = None) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


class _Own(Policy):
    """Policy with a target network, an optimizer, a schedule, counters, averages and generators of its own."""

    config = dict(learn=dict(batch_size=16, update_per_collect=2), collect=dict(n_sample=8, unroll_len=1))

    def _build_model(self) -> torch.nn.Module:
        return torch.nn.Linear(4, 2)

    def _init_learn(self) -> None:
        self._target = torch.nn.Linear(4, 2)
        self._target.load_state_dict(self._model.state_dict())
        self._adam = torch.optim.Adam(self._model.parameters(), lr=0.01)
        self._schedule = torch.optim.lr_scheduler.ExponentialLR(self._adam, 0.99)
        self._noise = torch.Generator().manual_seed(5)
        self._dropped = np.random.default_rng(6)
        self._updates = 0
        self._average = torch.zeros(())

    def _learn(self, obs: Any, action: Any, reward: Any, next_obs: Any, done: Any) -> torch.Tensor:
        with torch.no_grad():
            target = reward + 0.9 * self._target(next_obs).amax(1) * ~done
            target += 0.01 * torch.randn(len(target), generator=self._noise)
        kept = torch.from_numpy(self._dropped.random(len(target)) > 0.2)
        q = self._model(obs).gather(1, action.long().reshape(-1, 1))[:, 0]
        loss = ((q - target) ** 2 * kept).mean()
        self._adam.zero_grad()
        loss.backward()
        self._updates += 1
        self._average = 0.9 * self._average + 0.1 * loss.detach()
        return loss.detach()

    def _step(self) -> None:
        self._adam.step()
        self._schedule.step()
        if self._updates % 7 == 0:
            self._target.load_state_dict(self._model.state_dict())


@POLICY_REGISTRY.register("own_of_ours")
class OwnOfOurs(_Own):
    config = dict(type="own_of_ours")

    def _init_collect(self) -> None:
        self._collect_actor = _Actor(self._model)

    def _init_eval(self) -> None:
        self._eval_actor = _Actor(self._model)

    def grad(self, batch: Any) -> Any:
        rows = batch.to(self._device)
        loss = self._learn(*(rows[name] for name in ("obs", "action", "reward", "next_obs", "terminated")))
        return {"total_loss": loss}, None

    def apply(self) -> None:
        self._step()

    def _monitor_vars_learn(self) -> list[str]:
        return ["total_loss"]


@POLICY_REGISTRY.register("own_of_di_engine")
class OwnOfDiEngine(_Own):
    config = dict(type="own_of_di_engine")

    def _forward_learn(self, data: Any) -> Any:
        def column(name: str) -> torch.Tensor:
            return torch.stack([torch.as_tensor(np.asarray(row[name])).reshape(-1).float() for row in data])

        obs, next_obs, reward = column("obs"), column("next_obs"), column("reward")[:, 0]
        loss = self._learn(obs, column("action")[:, 0], reward, next_obs, column("done")[:, 0].bool())
        self._step()
        return {"total_loss": float(loss), "cur_lr": self._adam.param_groups[0]["lr"]}

    def _forward_collect(self, data: Any, **kwargs: Any) -> Any:
        return {i: {"action": torch.randint(2, (), generator=self._noise)} for i in data}

    def _process_transition(self, obs: Any, policy_output: Any, timestep: Any) -> Any:
        row = {"obs": obs, "next_obs": timestep.obs, "action": policy_output["action"]}
        return {**row, "reward": timestep.reward, "done": timestep.done}

    def _get_train_sample(self, transitions: Any) -> Any:
        return transitions

    def _forward_eval(self, data: Any) -> Any:
        return {i: {"action": self._model(torch.as_tensor(obs).float()).argmax()} for i, obs in data.items()}


def configs(policy: str) -> Any:
    main = dict(
        exp_name="exp",
        env=dict(env_id="CartPole-v1", collector_env_num=4, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9),
        policy=dict(eval=dict(evaluator=dict(eval_freq=50))),
    )
    return main, dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type=policy))


def lines(exp: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (exp / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "time" not in k and "per_sec" not in k} for row in rows]


@pytest.mark.parametrize("policy", ["own_of_ours", "own_of_di_engine"])
def test_interrupted_and_resumed_is_as_straight(policy, tmp_path):
    straight: Any = serial_pipeline(configs(policy), seed=2, max_env_step=240, exp_name="straight")
    serial_pipeline(configs(policy), seed=2, max_env_step=104, exp_name="parts")

    resumed: Any = resume_pipeline("parts", max_env_step=240)

    for mine, theirs in ((straight._model, resumed.get_attribute("model")), (straight._target, resumed._target)):
        assert all(torch.equal(*pair) for pair in zip(mine.parameters(), theirs.parameters(), strict=True))
    assert straight._updates == resumed._updates > 40 and torch.equal(straight._average, resumed._average)
    assert straight._dropped.random() == resumed._dropped.random()
    assert straight._schedule.get_last_lr() == resumed._schedule.get_last_lr()
    exp = {line["source"] for line in lines(tmp_path / "straight")}
    assert "learner" in exp and "evaluator" in exp


def test_nothing_is_said_of_a_policy_that_is_saved_whole(caplog):
    serial_pipeline(configs("own_of_ours"), seed=0, max_env_step=64, exp_name="exp")

    assert "is not saved with the run" not in caplog.text
