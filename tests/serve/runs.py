"""Folders of runs that were not trained: a config, and checkpoints of freshly drawn weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import requests

from ding_like.config import compile_config
from ding_like.envs import get_vec_env_setting
from ding_like.pipeline.envs import build_policy, build_single_env, fit_policy_config
from ding_like.policy import Policy
from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
from ding_like.serve.http_server import PolicyServer
from ding_like.serve.served import ActRequest
from ding_like.utils.checkpoint import save_state
from ding_like.utils.files import atomic_write
from tests.contracts.policy_cases import ACTING, Case

TOY = "tests.serve.toy_envs:ToyEnv"


class Run:
    """Folder of a run; it writes checkpoints as training would."""

    def __init__(
        self,
        folder: Path,
        policy: str = "dqn",
        settings: dict[str, Any] | None = None,
        *,
        wrappers: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """`kwargs` are those of the toy env."""
        self.folder = folder
        main = dict(
            exp_name=str(folder),
            env=dict(
                collector_env_num=1, evaluator_env_num=2, n_evaluator_episode=2, kwargs=kwargs, wrappers=wrappers or []
            ),
            policy=settings or {},
        )
        create = dict(env=dict(type=TOY), env_manager=dict(type="base"), policy=dict(type=policy))
        self.cfg = compile_config(main, create, seed=0, save=True)
        env_fn, _, env_cfgs = get_vec_env_setting(self.cfg.env, collect=False)
        manager = build_single_env(lambda: env_fn(env_cfgs[0]))
        self.fitted = fit_policy_config(self.cfg.policy, manager)
        manager.close()

    def policy(self, seed: int) -> Policy:
        """Return the policy with weights that follow from a seed."""
        return build_policy(self.fitted, seed=seed)

    def save(self, train_iter: int, *, name: str | None = None, **more: Any) -> Path:
        """Write the checkpoint of an iteration, whose weights are those of `policy(train_iter)`."""
        path = self.folder / "ckpt" / (name or f"iteration_{train_iter}.pth.tar")
        path.parent.mkdir(parents=True, exist_ok=True)
        state = self.policy(train_iter).learn_mode.state_dict()
        save_state(path, {**state, "last_iter": train_iter, "last_step": 8 * train_iter, **more})
        return path

    def put(self, data: bytes, name: str) -> Path:
        """Write any bytes as a checkpoint."""
        path = self.folder / "ckpt" / name
        with atomic_write(path) as file:
            file.write(data)
        return path


def run_of(folder: Path, case: Case, *, masked: bool = False) -> Run:
    """Return a run of a case of the policies' contracts."""
    space = "box" if case.space is ACTING["sac"].space else None
    kinds = {
        "discrete": "dqn",
        "several": "ppo several",
        "bits": "ppo bits",
        "team": "qmix",
        "team box": "masac",
        "box": "sac",
        "hybrid": "pdqn",
    }
    action = space or next(kind for kind, name in kinds.items() if ACTING[name].space == case.space)
    sizes = {"discrete": 4, "several": 5, "bits": 6, "team": 8}
    mask = sizes[action] if masked else 0
    obs = "team" if isinstance(case.settings["model"]["obs_shape"], dict) else "vector"
    return Run(folder, case.policy, case.settings, obs=obs, action=action, mask=mask)


@contextmanager
def serving(run: Run, which: str = "newest", *, reload_s: float = 60.0, **settings: Any) -> Iterator[PolicyServer]:
    """Serve a run's policy meanwhile; `settings` are those of the blueprint or of the server."""
    of_server = {name: settings.pop(name) for name in ("token", "host") if name in settings}
    blueprint = Blueprint(run.folder, **settings)
    with ServedPolicy(blueprint, CheckpointChoice(run.folder, which), reload_s=reload_s) as served:
        server = PolicyServer(served, **of_server)
        server.start()
        try:
            yield server
        finally:
            server.close()


def ask(url: str, obs: Any, **more: Any) -> dict[str, Any]:
    """Return what a server answers to an observation, or several, in JSON."""
    response = requests.post(f"{url}/act", json={"obs": to_json(obs), **more}, timeout=60)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def to_json(obs: Any) -> Any:
    """Return an observation as JSON has it."""
    if isinstance(obs, dict):
        return {name: to_json(value) for name, value in obs.items()}
    return np.asarray(obs).tolist()


def question(obs: Any, *, state: Any = None, is_first: Any = None) -> ActRequest:
    """Return what a client asks, as the server reads it."""
    return ActRequest(_flat(obs), state, is_first)


def _flat(obs: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(obs, dict):
        return {path: obs}
    return {k: v for name, inner in obs.items() for k, v in _flat(inner, f"{path}/{name}" if path else name).items()}
