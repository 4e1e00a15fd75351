"""Runs with hindsight goals: they learn, go on exactly as they were saved, and are refused where they make no sense."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ding_like.entry import parallel_pipeline, serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)


def configs(**policy: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    main = dict(
        exp_name="run",
        env=dict(n_bits=5, collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2),
        policy=dict(
            random_collect_size=100,
            model=dict(encoder_hidden_size_list=[16], dueling=False, head_layer_num=0),
            learn=dict(update_per_collect=1, batch_size=32),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=10000)),
        ),
    )
    create = dict(
        env=dict(type="bitflip", import_names=["dizoo.bitflip.envs.bitflip_env"]),
        policy=dict(type="dqn"),
        replay_buffer=dict(type="her"),
    )
    for path, value in policy.items():
        section: Any = main["policy"]
        *parents, key = path.split("__")
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value
    return copy.deepcopy(main), create


def weights(policy: Any) -> np.ndarray:
    return np.concatenate([value.numpy().ravel() for value in policy.learn_mode.state_dict()["model"].values()])
