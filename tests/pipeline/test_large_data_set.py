"""A data set of 2 GB is trained from within 500 MB of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

ROWS = 19_000_000
# As safetensors sort them: what is wider comes first.
COLUMNS = {
    "obs": (np.float32, (11,)),
    "next_obs": (np.float32, (11,)),
    "action": (np.float32, (3,)),
    "reward": (np.float32, ()),
    "terminated": (np.bool_, ()),
    "truncated": (np.bool_, ()),
}
TRAIN = """
import sys
from ding_like.entry import serial_pipeline_offline
import ding_like.entry.training
ding_like.entry.training.write_pictures = lambda *args, **kwargs: None
env = dict(env_id="Hopper-v5", evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9)
policy = dict(learn=dict(batch_size=256), collect=dict(data_path=sys.argv[1]), eval=dict(evaluator=dict(eval_freq=200)))
create = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="bc"))
serial_pipeline_offline((dict(exp_name="run", env=env, policy=policy), create), seed=0, max_iter=400)
status = dict(line.split(":") for line in open("/proc/self/status"))
print("peak", int(status["VmHWM"].split()[0]) * 1024)
"""


def write_columns(path: Path) -> None:
    """Write the file a piece at a time, random but for the ends of episodes of 1,000 steps."""
    example = {name: np.zeros((0, *shape), dtype) for name, (dtype, shape) in COLUMNS.items()}
    text = save(example, metadata={"format": "ding_like columns 1", "columns": json.dumps(list(COLUMNS)), "info": "{}"})
    header, start = json.loads(text[8:]), 0
    for name, (dtype, shape) in COLUMNS.items():
        stop = start + ROWS * int(np.prod(shape)) * np.dtype(dtype).itemsize
        header[name].update(shape=[ROWS, *shape], data_offsets=[start, stop])
        start = stop
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, (dtype, shape) in COLUMNS.items():
            for first in range(0, ROWS, 1 << 18):
                rows = min(1 << 18, ROWS - first)
                if dtype is np.float32:
                    part = rng.random((rows, *shape), np.float32) * 2 - 1
                else:
                    part = (np.arange(first, first + rows) % 1000 == 999) & (name == "truncated")
                file.write(part.tobytes())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux' /proc")
def test_two_gigabytes_are_trained_from_within_500_megabytes(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    file = tmp_path / "large.safetensors"
    write_columns(file)
    assert file.stat().st_size > 2e9

    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    file.unlink()

    assert done.returncode == 0, done.stderr[-2000:]
    peak = int(done.stdout.rsplit("peak ", 1)[1])
    assert peak < 500e6, f"{peak / 1e6:.0f} MB"
