"""A run of noisy networks goes on exactly: the noise of acting and that of gradients are part of what is saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ding_like.entry import resume_pipeline, serial_pipeline
from tests.pipeline.test_serial import make_configs


def metrics(exp: str) -> list[dict]:
    """Return what was logged, without what depends on the clock."""
    rows = [json.loads(line) for line in Path(exp, "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "time" not in k and "per_sec" not in k} for row in rows]


@pytest.mark.parametrize("noise", [True, False])
def test_a_rainbow_run_in_two_parts_equals_one_in_one(noise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)

    def configs():
        model = dict(encoder_hidden_size_list=[16], head_hidden_size=16, v_min=0, v_max=30, n_atom=11, noise=noise)
        main, create = make_configs(model=model)
        return main, {**create, "policy": dict(type="rainbow")}

    whole = serial_pipeline(configs(), seed=3, max_env_step=400, exp_name="whole")
    serial_pipeline(configs(), seed=3, max_env_step=233, exp_name="parts")

    resumed = resume_pipeline("parts", max_env_step=400)

    assert torch.equal(whole._params.data_vector, resumed._params.data_vector)
    assert torch.equal(whole._target_params.data_vector, resumed._target_params.data_vector)
    assert metrics("whole") == metrics("parts")
    assert (whole._noise is not None) == noise
    if noise:
        assert torch.equal(whole._noise.state, resumed._noise.state)
