"""A compiled config is the defaults of the named classes, then the user's; every fault is in one error."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from ding_like.config import FrozenConfig, compile_config, read_config, to_plain
from ding_like.errors import ConfigError
from tests.config.conftest import FakePolicy

FIVE_FAULTS = """\
from easydict import EasyDict

learn = dict(batchsize=32)
main_config = dict(
    env=dict(evaluator_env_nums=3),
    policy=dict(
        nstep="3",
        discont_factor=0.99,
        learn=learn,
        collect=dict(n_sample=8, n_episode=4),
    ),
)
main_config = EasyDict(main_config)
names = ("env", "env_manager", "policy", "learner", "collector", "evaluator", "replay_buffer")
create_config = {name: dict(type="cfg_fake") for name in names}
"""


def compiled(main: dict[str, Any], create: dict[str, Any], **kwargs: Any) -> FrozenConfig:
    return compile_config(main, create, save=False, **kwargs)


def faults_of(main: dict[str, Any], create: dict[str, Any], **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        compiled(main, create, **kwargs)
    return str(caught.value)


def test_three_typos_a_wrong_type_and_a_contradiction_are_one_error(tmp_path: Path) -> None:
    path = tmp_path / "faulty_config.py"
    path.write_text(FIVE_FAULTS)
    config = read_config(path)

    text = faults_of(config.main_config, config.create_config, source=str(path))

    assert text.splitlines() == [
        "5 problems in faulty_config.py",
        "  env.evaluator_env_nums   unknown key; did you mean 'evaluator_env_num' (default 4)? (line 5)",
        "  policy.nstep             expected int, got str '3' (line 7)",
        "  policy.discont_factor    unknown key; did you mean 'discount_factor' (default 0.97)? (line 8)",
        "  policy.learn.batchsize   unknown key; did you mean 'batch_size' (default 64)? (line 3)",
        "  policy.collect           n_sample and n_episode are both set; give one (line 10)",
    ]


def test_layout_has_the_defaults_of_every_class_at_its_place(create: dict[str, Any]) -> None:
    cfg = compiled({}, create)

    assert cfg.env == {
        "manager": {"type": "cfg_fake", "step_timeout_s": 60.0},
        "import_names": [],
        "stop_value": 1e10,
        "n_evaluator_episode": 5,
        "collector_env_num": 8,
        "evaluator_env_num": 4,
        "metrics": [],
        "env_id": None,
        "kwargs": {},
        "type": "cfg_fake",
    }
    assert cfg.policy.learn.learner == {"type": "cfg_fake", "hook": {"save_ckpt_after_iter": 10000}}
    assert cfg.policy.collect.collector == {"type": "cfg_fake"}
    assert cfg.policy.eval.evaluator == {"type": "cfg_fake", "eval_freq": 1000, "stop_value": 1e10, "n_episode": 5}
    assert cfg.policy.other.replay_buffer == {"type": "cfg_fake", "replay_buffer_size": 5000, "alpha": 0.6}
    assert cfg.policy.other.commander == {}
    assert (cfg.exp_name, cfg.seed, cfg.policy.type) == ("default_experiment", 0, "cfg_fake")


def test_inputs_are_not_changed(create: dict[str, Any]) -> None:
    main = EasyDict(policy=dict(model=dict(sizes=[1, 2])))
    before = to_plain(main), to_plain(create)

    compiled(main, create, overrides=["policy.nstep=3", "create.policy.type=cfg_fake"])

    assert (to_plain(main), to_plain(create)) == before


def test_command_suffix_names_the_plain_policy(create: dict[str, Any]) -> None:
    create["policy"]["type"] = "cfg_fake_command"

    assert compiled({}, create).policy.type == "cfg_fake"


def test_env_settings_are_copied_to_the_evaluator(create: dict[str, Any]) -> None:
    cfg = compiled({"env": {"stop_value": 475, "n_evaluator_episode": 20}}, create)

    assert (cfg.policy.eval.evaluator.stop_value, cfg.policy.eval.evaluator.n_episode) == (475, 20)


def test_settings_in_create_config_are_read_but_main_config_wins(create: dict[str, Any]) -> None:
    create["replay_buffer"].update(alpha=0.1, replay_buffer_size=3)
    main = {"policy": {"other": {"replay_buffer": {"replay_buffer_size": 4}}}}

    buffer = compiled(main, create).policy.other.replay_buffer

    assert (buffer.alpha, buffer.replay_buffer_size) == (0.1, 4)


# A part of main_config, or changes of create_config, and the message.
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"policy": {"learn": {"batch_size": 64.5}}}, "expected int, got float 64.5"),
    ({"policy": {"learn": {"batch_size": True}}}, "expected int, got bool True"),
    ({"policy": {"learn": {"batch_size": None}}}, "expected int, got None"),
    ({"policy": {"learn": {"batch_size": float("inf")}}}, "expected int, got float inf"),
    ({"policy": {"learn": {"learning_rate": "1e-3"}}}, "expected float, got str '1e-3'"),
    ({"policy": {"learn": {"grad_clip_norm": "big"}}}, "expected float, got str 'big'"),
    ({"policy": {"learn": {"resume_training": 1}}}, "expected bool, got int 1"),
    ({"policy": {"learn": 3}}, "policy.learn   expected a section, dict(...), got int 3"),
    ({"policy": {"nstep": {"a": 1}}}, "policy.nstep   expected int, got dict"),
    ({"policy": {"batch_size": 32}}, "did you mean 'policy.learn.batch_size' (default 64)?"),
    ({"policy": {"other": {"eps": {"zzz": 1}}}}, "policy.other.eps.zzz   unknown key; known here: type, decay"),
    ({"policy": {"model": {1: 2}}}, "a key must be a non-empty str, got int 1"),
    ({"policy": {"model": {"act": [object()]}}}, "policy.model.act   expected numbers, text, lists and dicts"),
    ({"policy": {"nstep": 100}}, "policy.learn.batch_size   is below nstep=100"),
    ({"env": {"evaluator_env_num": 8, "n_evaluator_episode": 5}}, "5 episodes for evaluator_env_num=8 envs"),
    ({"env": {"type": "cfg_open"}}, "env.type   is 'cfg_open' here and 'cfg_fake' in create_config.env; give one"),
    ({"env": {"type": 3}}, "env.type   expected str, got int 3"),
]
FAULTS_IN_CREATE: list[tuple[dict[str, Any], str]] = [
    ({"env": {}}, "create_config.env.type   is missing; name a class of the env registry"),
    ({"env": {"type": "cfg_fake", "import_names": [3]}}, "env.import_names   expected a list of module names"),
    ({"policy": "cfg_fake"}, "create_config.policy   expected dict(type=...), got str 'cfg_fake'"),
    ({"polcy": {"type": "cfg_fake"}}, "create_config.polcy   unknown section; did you mean 'policy' (a section)?"),
    (
        {"replay_buffer": {"type": "cfg_fake", "alhpa": 0.1}},
        "create_config.replay_buffer.alhpa   unknown key; did you mean 'alpha'",
    ),
]


def test_each_fault_is_told_with_its_place(create: dict[str, Any]) -> None:
    said = [(faults_of(main, create), message) for main, message in FAULTS]
    said += [(faults_of({}, {**create, **changes}), message) for changes, message in FAULTS_IN_CREATE]

    assert [(text, message) for text, message in said if message not in text] == []


@pytest.mark.parametrize("wrap", [dict, EasyDict])
def test_key_that_hides_a_dict_method_is_refused_also_in_free_sections(
    create: dict[str, Any], wrap: type[dict[str, Any]]
) -> None:
    for key in ("get", "items", "copy", "update", "keys", "values", "pop", "clear"):
        text = faults_of({"policy": {"model": wrap({key: 1})}}, create)

        assert f"policy.model.{key}   this key would hide the dict method" in text


def test_numbers_of_any_kind_become_those_of_the_default(create: dict[str, Any]) -> None:
    for value, expected in ((1e2, 100), (np.int64(5), 5), (np.float32(4), 4)):
        batch_size = compiled({"policy": {"learn": {"batch_size": value}}}, create).policy.learn.batch_size
        assert (batch_size, type(batch_size)) == (expected, int)

    learn = compiled({"policy": {"learn": {"learning_rate": 1, "target_theta": 0.01}}}, create).policy.learn
    assert (type(learn.learning_rate), learn.target_theta) == (float, 0.01)


def test_arguments_win_over_the_file(create: dict[str, Any]) -> None:
    main = {"exp_name": "a", "seed": 3}

    cfgs = [compiled({}, create), compiled(main, create), compiled(main, create, seed=0, exp_name="b")]

    assert [(cfg.seed, cfg.exp_name) for cfg in cfgs] == [(0, "default_experiment"), (3, "a"), (0, "b")]


def test_experiment_folder_is_kept_if_asked_and_in_a_resumed_training(create: dict[str, Any]) -> None:
    resumed = {"exp_name": "run", "policy": {"learn": {"resume_training": True}}}

    names = [compile_config({"exp_name": "run"}, create, renew_dir=False).exp_name for _ in range(2)]
    names += [compile_config(resumed, create).exp_name for _ in range(2)]

    assert names == ["run"] * 4


def test_env_that_declares_nothing_still_gets_typos_of_common_keys_told(create: dict[str, Any]) -> None:
    create["env"]["type"] = "cfg_open"

    assert "did you mean 'collector_env_num'" in faults_of({"env": {"colector_env_num": 3}}, create)


def test_alternative_to_a_default_switches_the_default_off(create: dict[str, Any]) -> None:
    collect = compiled({"policy": {"collect": {"n_episode": 4}}}, create).policy.collect

    assert (collect.n_sample, collect.n_episode) == (None, 4)


def test_unknown_class_is_a_fault_beside_the_others(create: dict[str, Any]) -> None:
    create["policy"]["type"] = "cfg_fakee"

    text = faults_of({"policy": {"whatever": 1}, "env": {"stop_value": "x"}}, create)

    assert text.startswith("2 problems in")
    assert "create_config.policy.type   unknown policy 'cfg_fakee'; did you mean 'cfg_fake'" in text
    assert "env.stop_value" in text


def test_import_names_register_classes_and_stay_in_the_config(create: dict[str, Any], tmp_path: Path) -> None:
    source = "from ding_like.utils.registries import ENV_REGISTRY\n"
    source += '@ENV_REGISTRY.register("from_a_module")\nclass Env: ...\n'
    (tmp_path / "env_beside_the_config.py").write_text(source)
    (tmp_path / "any_config.py").write_text("main_config = {}\ncreate_config = {}\n")
    read_config(tmp_path / "any_config.py")  # puts its folder on sys.path
    create["env"] = {"type": "from_a_module", "import_names": ["env_beside_the_config"]}

    cfg = compiled({}, create)

    assert cfg.env.import_names == ["env_beside_the_config"]


def test_keys_of_di_engine_without_use_get_one_warning(
    create: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    create["env_manager"]["shared_memory"] = False
    main = {
        "env": {"manager": {"max_retry": 2}, "use_act_scale": True},
        "policy": {"learn": {"multi_gpu": False, "learner": {"dataloader": {"num_workers": 0}}}},
    }

    with caplog.at_level(logging.WARNING, logger="ding_like"):
        cfg = compiled(main, create, source="some_config.py")

    assert len(caplog.records) == 1
    text = caplog.records[0].getMessage()
    assert text.startswith("some_config.py: these keys of DI-engine are ignored\n")
    ignored = [line.split()[0] for line in text.splitlines()[1:]]
    assert ignored == [
        "env.manager.shared_memory",
        "env.manager.max_retry",
        "env.use_act_scale",
        "policy.learn.multi_gpu",
        "policy.learn.learner.dataloader",
    ]
    assert "max_retry" not in cfg.env.manager


def test_copy_that_says_something_else_is_told(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    main = {"env": {"n_evaluator_episode": 8}, "policy": {"eval": {"evaluator": {"n_episode": 5}}}}

    with caplog.at_level(logging.WARNING, logger="ding_like"):
        cfg = compiled(main, create)

    assert cfg.policy.eval.evaluator.n_episode == 8
    assert "it is a copy of env.n_evaluator_episode, which is 8" in caplog.text


def test_experiment_folder_that_exists_gets_a_date(create: dict[str, Any]) -> None:
    names = [compile_config({"exp_name": "run"}, create).exp_name for _ in range(4)]

    assert names[0] == "run"
    assert all(name.startswith("run_") for name in names[1:])
    assert len(set(names)) == 4
    assert all(os.path.isdir(name) for name in names)


def test_experiment_folder_that_cannot_be_made_is_told(create: dict[str, Any]) -> None:
    Path("taken").write_text("a file")

    with pytest.raises(ConfigError, match="cannot make the experiment folder 'taken/run'"):
        compile_config({"exp_name": "taken/run"}, create)
    with pytest.raises(ConfigError, match="'taken' is a file here, and is to name the run's folder"):
        compile_config({"exp_name": "taken"}, create, renew_dir=False)


def test_without_save_nothing_is_written(create: dict[str, Any]) -> None:
    compiled({"exp_name": "run"}, create)

    assert not os.listdir()


def test_importing_config_loads_no_torch() -> None:
    code = "import sys, ding_like.config; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]

    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


@pytest.mark.parametrize(
    ("on_policy", "n_sample", "batch_size"), [(True, 8, 9), (True, 8, 8), (True, 9, 16), (False, 8, 9)]
)
def test_batch_that_an_on_policy_collection_never_fills_is_named(
    on_policy: bool,
    n_sample: int,
    batch_size: int,
    create: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(FakePolicy, "config", {**FakePolicy.config, "on_policy": on_policy})

    compiled({"policy": {"collect": {"n_sample": n_sample}, "learn": {"batch_size": batch_size}}}, create)

    # Each of the 8 envs takes the same number of steps.
    assert ("holds at most the 8 rows" in caplog.text) == (on_policy and batch_size == 9)
