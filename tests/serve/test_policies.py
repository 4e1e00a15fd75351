"""Every policy is served, and does over HTTP what it does in an evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import torch
from safetensors.numpy import load, save

from ding_like.data.rows import adapt_eval_mode
from ding_like.errors import ConfigError
from ding_like.policy import Policy
from ding_like.serve import Blueprint
from ding_like.utils.registries import POLICY_REGISTRY
from ding_like.utils.seeding import make_rng
from tests.contracts.policy_cases import ACTING, BY_REWARDS, MASKED, act, draw_obs, shipped_policies
from tests.serve.runs import Run, ask, run_of, serving

ROWS = 5
# One policy of each family, and of each kind of action, in every test run; all the others with those marked slow.
FAMILIES = {"rainbow", "r2d2", "qmix", "ppo several", "ppo hybrid", "sac", "pdqn"}


def quick(names: Iterable[str]) -> list[Any]:
    """Return parameters, of which those that are not of `FAMILIES` are slow; what needs rewards is not served."""
    served = [name for name in names if name not in BY_REWARDS]
    return [pytest.param(name, marks=() if name in FAMILIES else pytest.mark.slow) for name in served]


def tensors_of(obs: Any) -> dict[str, np.ndarray]:
    return {f"obs/{name}": value for name, value in obs.items()} if isinstance(obs, dict) else {"obs": obs}


def ask_tensors(url: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    headers = {"Content-Type": "application/octet-stream"}
    response = requests.post(f"{url}/act", data=save(tensors), headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    return load(response.content)


def rows_of(obs: Any, rows: int | slice) -> Any:
    return {name: value[rows] for name, value in obs.items()} if isinstance(obs, dict) else obs[rows]


def expected_actions(run: Run, obs: Any, *num_rows: int) -> list[np.ndarray]:
    """Return what an evaluation chooses for so many rows in turn, with a server's random numbers."""
    actor, rng = adapt_eval_mode(run.policy(3).eval_mode).actor, make_rng(0, "serve")
    begun = (1, *num_rows)  # a server acts once before it is asked
    return [act(actor, rows_of(obs, slice(rows)), rows, rng=rng)["action"] for rows in begun][1:]


def test_every_shipped_policy_has_a_case_that_acts_or_acts_nowhere() -> None:
    assert shipped_policies() - {case.policy for case in ACTING.values()} <= {"image_classification"}


@pytest.mark.parametrize("name", quick(ACTING))
def test_a_policy_chooses_what_it_chooses_in_an_evaluation(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "exp", ACTING[name])
    run.save(3)
    obs = draw_obs(ACTING[name], ROWS, np.random.default_rng(1))
    of_batch, of_one, of_tensors = expected_actions(run, obs, ROWS, 1, ROWS)
    if name != "bcq":  # which draws its candidates anew
        # A batch of one goes another way through matrix products.
        np.testing.assert_allclose(of_one[0], of_batch[0], rtol=1e-5, atol=1e-6)

    with serving(run) as server:
        batch, one = ask(server.url, obs), ask(server.url, rows_of(obs, 0))
        tensors = ask_tensors(server.url, tensors_of(obs))

    np.testing.assert_array_equal(np.array(batch["action"], of_batch.dtype), of_batch)
    np.testing.assert_array_equal(tensors["action"], of_tensors)
    np.testing.assert_array_equal(np.array(one["action"], of_one.dtype), of_one[0])
    assert batch["version"] == {"number": 1, "file": "iteration_3.pth.tar", "train_iter": 3, "env_step": 24}


@pytest.mark.parametrize("name", quick(MASKED))
def test_a_policy_obeys_the_mask_that_is_sent(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "exp", MASKED[name], masked=True)
    run.save(3)
    obs = draw_obs(MASKED[name], ROWS, np.random.default_rng(1), masked=True)

    with serving(run) as server:
        answer = ask(server.url, obs)

    np.testing.assert_array_equal(answer["action"], expected_actions(run, obs, ROWS)[0])


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("r2d2", "safetensors"),
        ("ppo_recurrent box", "json"),
        *(pytest.param(name, "json", marks=pytest.mark.slow) for name in ("r2d2 gru", "drqn", "ppo_recurrent")),
    ],
)
def test_a_client_that_sends_the_state_back_plays_as_an_evaluation_does(name: str, form: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "exp", ACTING[name])
    run.save(3)
    actor = adapt_eval_mode(run.policy(3).eval_mode).actor
    rng = np.random.default_rng(2)
    first = np.ones(ROWS, bool)
    state: dict[str, Any] = {}

    with serving(run) as server:
        for _ in range(6):
            obs = draw_obs(ACTING[name], ROWS, rng)
            expected = act(actor, obs, ROWS, is_first=first)["action"]
            if form == "json":
                answer = ask(server.url, obs, **({"state": state, "is_first": first.tolist()} if state else {}))
                action, state = np.array(answer["action"], expected.dtype), answer["state"]
            else:
                sent = {**{f"state/{key}": value for key, value in state.items()}, "is_first": first} if state else {}
                found = ask_tensors(server.url, {**tensors_of(obs), **sent})
                action = found.pop("action")
                state = {key.removeprefix("state/"): value for key, value in found.items()}
            np.testing.assert_array_equal(action, expected)
            first = rng.random(ROWS) < 0.3


def test_without_the_state_a_policy_that_remembers_acts_as_at_the_start_of_an_episode(tmp_path: Path) -> None:
    run = run_of(tmp_path / "exp", ACTING["ppo_recurrent box"])
    run.save(3)
    rng = np.random.default_rng(2)
    first, second = (draw_obs(ACTING["ppo_recurrent box"], 1, rng)[0] for _ in range(2))

    with serving(run) as server:
        begun = ask(server.url, first)
        went_on, anew = ask(server.url, second, state=begun["state"]), ask(server.url, second)
        again = ask(server.url, second, state=begun["state"], is_first=True)

    assert went_on["action"] != anew["action"]
    assert anew["action"] == again["action"] and anew["state"] == again["state"]


def test_a_large_batch_with_its_state_is_taken(tmp_path: Path) -> None:
    run = run_of(tmp_path / "exp", ACTING["ppo_recurrent"])
    run.save(3)
    obs = draw_obs(ACTING["ppo_recurrent"], 1024, np.random.default_rng(1)).astype(np.float64)
    sent = obs + 1e-17 * np.arange(1024)[:, None]  # as many digits as there are

    with serving(run) as server:
        state = ask(server.url, sent)["state"]
        answer = ask(server.url, sent, state={name: (np.array(each) / 3).tolist() for name, each in state.items()})

    assert len(answer["action"]) == 1024


class OldStyle(Policy):
    """Policy in DI-engine's style, with a state of its own that `reset` clears."""

    config = dict(type="test_serve_old_style")

    def _build_model(self) -> torch.nn.Module:
        self._steps: dict[int, int] = {}
        return torch.nn.Linear(3, 4)

    def _forward_learn(self, data: Any) -> dict[str, float]:
        return {}

    def _forward_eval(self, data: dict[int, Any], **kwargs: Any) -> dict[int, dict[str, Any]]:
        self._steps.update({env_id: self._steps.get(env_id, -1) + 1 for env_id in data})
        return {env_id: {"action": self._model(obs).argmax() * 0 + self._steps[env_id]} for env_id, obs in data.items()}

    def _reset_eval(self, data_id: Any = None) -> None:
        self._steps = {} if data_id is None else {k: v for k, v in self._steps.items() if k not in data_id}


def test_a_policy_in_di_engines_style_begins_an_episode_with_every_request_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if "test_serve_old_style" not in POLICY_REGISTRY:
        POLICY_REGISTRY.register("test_serve_old_style")(OldStyle)
    run = Run(tmp_path / "exp", "test_serve_old_style")
    run.save(1)

    with serving(run) as server:
        actions = [ask(server.url, [[0.0, 1.0, 2.0]] * 3)["action"] for _ in range(3)]

    assert actions == [[0, 0, 0]] * 3
    assert len([record for record in caplog.records if "with every request an episode begins" in record.message]) == 1


def test_what_was_trained_on_a_gpu_is_served_on_the_cpu_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = Run(tmp_path / "exp", "dqn")
    run.save(1)
    config = run.folder / "total_config.py"
    text, num_changed = re.subn(r"(['\"]?cuda['\"]?\s*[:=]\s*)False", r"\1True", config.read_text())
    config.write_text(text)
    assert num_changed == 1

    with pytest.raises(ConfigError, match="torch sees none here: give --cpu"):
        Blueprint(run.folder)

    assert Blueprint(run.folder, on_cpu=True).make(run.folder / "ckpt/iteration_1.pth.tar").version.train_iter == 1
