"""An exported file acts as the agent does, where there is no ding_like."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ding_like
from ding_like.agent import export as export_module
from ding_like.agent.description import write_description
from ding_like.agent.export import METADATA, Exported, export
from ding_like.data.batch import obs_to_columns
from ding_like.entry import cli
from ding_like.errors import CheckpointError, ConfigError
from tests.agent.played import ALL, QAC, SMALL, saved_run
from tests.agent.test_load import some
from tests.contracts.policy_cases import ACTING, BY_REWARDS, draw_obs
from tests.serve.runs import Run, run_of
from tests.serve.toy_envs import ToyEnv

# The wrappers that a program has to apply which runs the file.
WRAPPED = {
    "stacked and normalised": ["obs_norm", "frame_stack"],
    "stacked dicts": ["FlattenObservation", "frame_stack"],
    "chosen and scaled": ["obs_select"],
    "statistics": [],
}
STACKED = {name: ["frame_stack"] for name in ("stacked frames", "stacked box", "normalised stacks", "hybrid stacked")}
STACKED |= {"flat": ["FlattenObservation"]}
IN_TORCHSCRIPT = [name for name in ACTING if name not in BY_REWARDS]
IN_ONNX = ["dqn", "c51 dueling", "rainbow", "iqn", "fqf", "r2d2 gru", "drqn", "ppo several", "ppo box", "sac", "pdqn"]
IN_ONNX += ["ppo hybrid", "ppo_recurrent", "qmix", "discrete_sac", "bcq"]
IN_ONNX += ["idqn", "mappo", "mappo_recurrent", "happo box", "maddpg", "masac"]


def _exported(run: Run, to: Any) -> Exported:
    run.save(3, name="ckpt_best.pth.tar")
    write_description(run.cfg)
    return export(run.folder, to=to)


@pytest.mark.parametrize(
    "name", some(IN_TORCHSCRIPT, "dqn", "rainbow", "ppo", "ppo box", "sac", "bcq", "r2d2", "ppo_recurrent")
)
def test_every_policy_is_exported_to_torchscript(name: str, tmp_path: Path) -> None:
    done = _exported(run_of(tmp_path / "exp", ACTING[name]), "torchscript")

    assert done.path == tmp_path / "exp/agent.pt" and done.path.is_file()
    assert done.drawn.num_actions == 60 and done.played is not None and done.played.num_actions == 200
    assert max(done.drawn.difference, done.played.difference) <= 1e-4


@pytest.mark.parametrize("name", some(IN_ONNX, "dqn", "sac", "ppo_recurrent"))
def test_policies_are_exported_to_onnx(name: str, tmp_path: Path) -> None:
    done = _exported(run_of(tmp_path / "exp", ACTING[name]), "onnx")

    assert done.path.suffix == ".onnx" and done.played is not None
    assert max(done.drawn.difference, done.played.difference) <= 1e-4


@pytest.mark.parametrize("kind", some([kind for kind in ALL if kind != "team"], *WRAPPED))
def test_wrappers_are_in_the_file_or_named_in_its_metadata(kind: str, tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", kind)

    done = export(run.folder, to="torchscript")

    applied = [each["type"] for each in done.metadata["wrappers_to_apply"]]
    assert applied == WRAPPED.get(kind, STACKED.get(kind, []))
    assert done.played is not None and done.played.num_actions == 200


_ALONE = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ding_like", "dizoo", "gymnasium"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
import numpy as np
path, given = sys.argv[1], [np.array(each, kind) for each, kind in json.loads(sys.argv[2])]
if path.endswith(".pt"):
    import torch
    extra = {"ding_like.json": ""}
    found = torch.jit.load(path, _extra_files=extra)(*map(torch.from_numpy, given))
    metadata = extra["ding_like.json"]
    found = [each.numpy() for each in found]
else:
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_inputs()]
    found = session.run(None, dict(zip(names, given)))
    metadata = session.get_modelmeta().custom_metadata_map["ding_like.json"]
inputs = [each["name"] for each in json.loads(metadata)["inputs"]]
print(json.dumps([inputs, [each.tolist() for each in found]]))
"""


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        ("statistics", "torchscript"),
        pytest.param("recurrent ppo", "torchscript", marks=pytest.mark.slow),
        pytest.param("recurrent ppo", "onnx", marks=pytest.mark.slow),
        pytest.param("chosen and scaled", "onnx", marks=pytest.mark.slow),
    ],
)
def test_a_file_acts_alike_in_a_process_without_ding_like(kind: str, to: Any, tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", kind)
    done = export(run.folder, to=to, out=tmp_path / f"file{export_module.SUFFIXES[to]}")
    agent = ding_like.load(run.folder)
    raw = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    obs = raw[:, [2, 0]] if kind == "chosen and scaled" else raw
    initial = done.metadata["initial_state"]
    given = [(obs.tolist(), "float32")] + [([value] * 5, "float32") for value in initial.values()]

    answer = subprocess.run(
        [sys.executable, "-c", _ALONE, str(done.path), json.dumps(given)], capture_output=True, text=True, timeout=120
    )

    assert answer.returncode == 0, answer.stderr
    inputs, found = json.loads(answer.stdout)
    assert inputs == ["obs", *(f"state/{name}" for name in initial)] and len(found) == 1 + len(initial)
    np.testing.assert_allclose(found[0], agent.act(raw), rtol=1e-4, atol=1e-5)


def test_a_mask_is_an_input(tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", "masked")
    done = export(run.folder, to="torchscript")
    run_file = export_module.run_torchscript(done.path)
    board = draw_obs(ACTING["dqn"], 8, np.random.default_rng(0))

    inputs = [each["name"] for each in done.metadata["inputs"]]
    for action in range(4):
        mask = np.zeros((8, 4), np.int8)
        mask[:, action] = 1
        given = {"obs/board": board, "obs/action_mask": mask}
        assert run_file([given[name] for name in inputs])[0].tolist() == [action] * 8
    assert sorted(inputs) == sorted(obs_to_columns("obs", {"board": 0, "action_mask": 0}))


def test_a_file_that_acts_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = saved_run(tmp_path / "exp", "box")
    original = export_module.run_torchscript

    def wrong(path: Path) -> Any:
        run_it = original(path)
        return lambda arrays: [each + np.float32(0.01) for each in run_it(arrays)]

    monkeypatch.setattr(export_module, "run_torchscript", wrong)

    with pytest.raises(CheckpointError, match=r"largest difference is 0\.0\d+ of the actions' size.*not written"):
        export(run.folder, to="torchscript")
    assert sorted(path.name for path in run.folder.glob("*agent*")) == ["agent.json"]
    assert not list(run.folder.glob(".export-*"))


def test_a_file_that_cannot_be_run_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = saved_run(tmp_path / "exp", "box")
    monkeypatch.setattr(export_module, "run_torchscript", lambda path: lambda arrays: 1 / 0)

    with pytest.raises(CheckpointError, match=r"cannot be run on 1 observations \(ZeroDivisionError"):
        export(run.folder, to="torchscript")
    assert not (run.folder / "agent.pt").exists()


def test_without_its_env_a_run_is_exported_and_checked_on_random_observations(tmp_path: Path) -> None:
    run = Run(tmp_path / "exp", "sac", QAC, action="box")
    run.save(3, name="ckpt_best.pth.tar")
    write_description(run.cfg)
    config = run.folder / "total_config.py"
    config.write_text(config.read_text().replace("tests.serve.toy_envs:ToyEnv", "nowhere.envs:ToyEnv"))

    done = export(run.folder, to="torchscript")

    assert done.played is None and done.drawn.num_actions == 60


def test_an_env_that_raises_leaves_the_check_on_random_observations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = saved_run(tmp_path / "exp", "vectors")
    monkeypatch.setattr(ToyEnv, "__init__", _raise_os_error)
    caplog.set_level("INFO")

    assert export(run.folder, to="torchscript").played is None
    assert "not checked in the env" in caplog.text and "OSError: no display" in caplog.text


def test_an_error_of_the_package_is_no_reason_to_leave_out_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = saved_run(tmp_path / "exp", "vectors")
    monkeypatch.setattr(export_module, "plain_section", lambda _: {}["wrappers"])

    with pytest.raises(KeyError):
        export(run.folder, to="torchscript")


def _raise_os_error(self: Any, *args: Any, **kwargs: Any) -> None:
    raise OSError("no display")


def test_what_cannot_be_exported_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = saved_run(tmp_path / "exp", "vectors")

    with pytest.raises(ConfigError, match="to is 'tflite', expected torchscript or onnx"):
        export(run.folder, to="tflite")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"no folder '.*nowhere' to write a.pt into: make it, or give another -o"):
        export(run.folder, to="torchscript", out=tmp_path / "nowhere/a.pt")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"needs the package onnxscript; .*ding-like\[onnx\]"):
        export(run.folder, to="onnx")


def test_an_actor_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ding_like.policy.forward import EpsilonGreedy

    run, _ = saved_run(tmp_path / "exp", "vectors")
    monkeypatch.delattr(EpsilonGreedy, "best")

    with pytest.raises(ConfigError, match=r"policy 'dqn' cannot be exported: .*best\(output, mask\)"):
        export(run.folder, to="torchscript")


def test_the_command_prints_inputs_and_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=[dict(type="frame_stack", stack_size=2), "FlattenObservation"])
    run.save(3, name="ckpt_best.pth.tar")
    write_description(run.cfg)

    cli.main(["export", str(run.folder), "--to", "torchscript", "-o", str(tmp_path / "agent.pt")])

    said = capsys.readouterr().out
    assert "inputs    obs float32 [B, 2, 3]" in said and "outputs   action int64 [B]" in said
    assert "apply     frame_stack to observations" in said and said.endswith(f"{tmp_path / 'agent.pt'}\n")
    assert METADATA == "ding_like.json"
