"""Config files written for DI-engine run as they are: what has no use here is named once, a misspelt key is an error.

`tests/config/di_engine/` holds files in the form in which DI-engine's users have them, written down from its
documentation, and `di_engine_files.py` variants of them; nothing in them is adapted to this package.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict
from torch import nn

from ding_like.config import FrozenConfig, compile_config, read_config, to_plain
from ding_like.config.di_engine import (
    LEGACY_KEYS,
    MISSING_METHODS,
    MODEL_KEYS,
    PARALLEL_COLLECTOR,
    RENAMED_KEYS,
    SYSTEM,
)
from ding_like.config.tree import get_path, leaves, set_path
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.entry.cli import main as ding
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.comm_collector import ZerglingParallelCollector
from ding_like.pipeline.parallel.settings import SYSTEM_TEMPLATE, read_system, serial_parts
from ding_like.policy import get_policy_cls
from tests.config.conftest import FakeLearner, FakePolicy
from tests.config.di_engine_files import FOLDER, names, write

# One of each kind runs in every test run, the others with those marked slow.
QUICK = {"cartpole_c51", "cartpole_ppo"}
# What stands for values that are no plain ones, or another form of ours: see RENAMED_KEYS for the others.
_SAID_OTHERWISE = {
    "policy.learn.lr_scheduler": "policy.learn.schedule",
    "policy.model.activation": "policy.model.activation",
}
_ABSENT = object()


def test_every_key_is_taken_over_or_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ding_like")
    wrong: dict[str, object] = {}
    for name in names():
        main, create = read_config(write(name, tmp_path))
        caplog.clear()
        cfg = compile_config(main, create, source=name, save=False)

        listings = [message for message in caplog.messages if "\n" in message]
        said = {line.split()[0] for message in listings for line in message.splitlines()[1:]}
        lost = {path for path, value in leaves(main) if not (_is_taken(cfg, path, value) or said & _prefixes(path))}
        if any("torch sees no GPU" in message for message in caplog.messages):
            lost ^= {"policy.cuda"}
        # One message about keys ignored, one about those without effect.
        if lost or not len(listings) == len(set(listings)) <= 2:
            wrong[name] = sorted(lost) or listings

    assert not wrong


def _is_taken(cfg: Any, path: str, value: Any) -> bool:  # Any: a config, and what stands in one
    """Tell whether a value stands where the config says, or where the key stands here."""
    if value == {}:
        return True  # a section that says nothing
    for name, ours in _SAID_OTHERWISE.items():
        if path == name or path.startswith(f"{name}."):
            return get_path(cfg, ours) is not None
    return any(get_path(cfg, place, _ABSENT) == value for place in (path, RENAMED_KEYS.get(path, path)))


def _prefixes(path: str) -> set[str]:
    keys = path.split(".")
    return {".".join(keys[:end]) for end in range(1, len(keys) + 1)}


def test_a_misspelt_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    for name in names():
        main, create = (copy.deepcopy(config) for config in read_config(write(name, tmp_path)))
        batch_size = main["policy"]["learn"].pop("batch_size")
        set_path(main, "policy.learn.batch_sise", batch_size)

        with pytest.raises(ConfigError) as raised:
            compile_config(main, create, save=False)

        said = str(raised.value)
        assert re.search(r"policy\.learn\.batch_sise +unknown key; did you mean 'batch_size'", said), (name, said)
        assert said.startswith("1 problem in"), (name, said)


def of_td3(folder: Path, *, name: str = "pendulum_td3", entry: str = "serial_pipeline", keys: str = "") -> Path:
    """Return the path of a config of TD3 whose main calls `entry`; `keys` join its section `collect`."""
    text = (FOLDER / "pendulum_td3_config.py").read_text()
    path = folder / f"{name}_config.py"
    path.write_text(text.replace("serial_pipeline", entry).replace("n_sample=48,", f"n_sample=48, {keys}"))
    return path


_OFFLINE = MISSING_METHODS["offline"]


@pytest.mark.parametrize(
    "changes, said",
    [
        (dict(entry="serial_pipeline_offline"), f"{_OFFLINE}, as it calls serial_pipeline_offline"),
        (dict(keys="data_path='d4rl.h5',"), f"{_OFFLINE}, as it has policy.collect.data_path"),
        (dict(name="pendulum_mbpo_td3"), "MBPO, a world model, as its name says"),
    ],
)
def test_a_config_of_a_method_that_is_not_here_is_refused(changes: Any, said: str, tmp_path: Path) -> None:
    path = of_td3(tmp_path, **changes)
    main, create = read_config(path)

    with pytest.raises(ConfigError, match=re.escape(f"{path.name} is a config of DI-engine for {said}.")) as raised:
        compile_config(main, create, source=str(path), save=False)

    assert "To train plain 'td3' by the rewards of the env, give --ignore-missing" in str(raised.value)


@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_plain_policy_of_a_missing_method_trains_where_that_is_asked_for(tmp_path: Path) -> None:
    path = of_td3(tmp_path, entry="serial_pipeline_bco", keys="model_path='expert.pth.tar',")
    with path.open("a") as file:
        file.write("\nmain_config.bco = dict(learn=dict(idm_batch_size=4))\n")

    ding(["-m", "serial", "-c", str(path), "--ignore-missing", "--env-step", "48", "policy.random_collect_size=48"])

    assert json.loads((tmp_path / "pendulum_td3_seed0/result.json").read_text())["env_step"] >= 48


def test_a_file_that_collects_demonstrations_is_a_config_like_any_other(tmp_path: Path) -> None:
    path = of_td3(tmp_path, name="pendulum_offline_td3", entry="collect_demo_data", keys="data_path='demo',")
    main, create = read_config(path)

    assert compile_config(main, create, source=str(path), save=False).policy.type == "td3"


@pytest.mark.timeout(600)  # Pong's episodes are long, and its evaluations are its own
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else (pytest.mark.slow,)) for name in names()]
)
@pytest.mark.usefixtures("in_tmp", "no_pictures")
def test_the_file_trains_for_1000_env_steps(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path)
    main, create = read_config(path)
    is_on_policy = get_policy_cls(create["policy"]).default_config().on_policy
    pipeline = serial_pipeline_onpolicy if is_on_policy else serial_pipeline

    pipeline(str(path), seed=0, max_env_step=1000)

    result = json.loads((tmp_path / main["exp_name"] / "result.json").read_text())
    assert result["env_step"] >= 1000
    assert result["eval_value"] is not None
    again = read_config(tmp_path / main["exp_name"] / "total_config.py")
    saved = compile_config(again.main_config, again.create_config, save=False, renew_dir=False)
    assert not re.search(r"<class|object at 0x", str(saved))


def compiled(policy: dict[str, Any], create: dict[str, Any], **kwargs: Any) -> FrozenConfig:
    return compile_config({"policy": policy}, create, save=False, **kwargs)


def test_key_that_stands_elsewhere_here_is_read_there(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    policy = compiled({"learn": {"discount_factor": 0.9, "clip_value": 5}}, create).policy

    assert (policy.discount_factor, policy.learn.grad_clip_norm) == (0.9, 5.0)
    assert "discount_factor" not in policy.learn and "clip_value" not in policy.learn
    assert not caplog.records


def test_both_names_that_differ_are_a_contradiction(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled({"discount_factor": 0.8, "learn": {"discount_factor": 0.9}}, create)

    assert str(caught.value).splitlines()[1:] == [
        "  policy.learn.discount_factor   is DI-engine's name of policy.discount_factor, which is set to 0.8; give one"
    ]


def test_wrong_type_is_told_by_the_name_that_was_written(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"policy\.learn\.target_update_theta +expected float, got str 'slow'"):
        compiled({"learn": {"target_update_theta": "slow"}}, create)


def test_other_name_of_a_key_that_the_class_lacks_is_unknown(create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"policy\.learn\.betas +unknown key"):
        compiled({"learn": {"betas": (0.9, 0.99)}}, create)


def test_every_other_name_leads_to_a_place_that_is_not_ignored() -> None:
    assert not RENAMED_KEYS.keys() & LEGACY_KEYS.keys()
    assert not set(RENAMED_KEYS.values()) & (RENAMED_KEYS.keys() | LEGACY_KEYS.keys())


def model_of(policy: dict[str, Any], kind: str = "dqn") -> dict[str, Any]:
    """Return policy.model of a compiled config of CartPole."""
    main = dict(env=dict(env_id="CartPole-v1"), policy=policy)
    cfg = compile_config(main, dict(env=dict(type="gymnasium"), policy=dict(type=kind)), save=False, builds_model=True)
    return to_plain(cfg.policy.model)


@pytest.mark.parametrize("path", ["policy.noisy_net", "policy.learn.noisy_net", "policy.model.noisy_net"])
def test_a_noisy_net_is_a_model_with_noise(path: str) -> None:
    policy: dict[str, Any] = {"model": {"encoder_hidden_size_list": [8]}}
    for value, expected in ((True, {"noise": True}), (False, {}), (None, {})):
        set_path(tree := {"policy": copy.deepcopy(policy)}, path, value)

        assert model_of(tree["policy"]) == {"encoder_hidden_size_list": [8], **expected}


def test_a_noisy_net_and_noise_of_the_model_may_both_be_given_if_they_agree() -> None:
    assert model_of({"noisy_net": True, "model": {"noise": True}}) == {"noise": True}
    with pytest.raises(ConfigError, match="policy.noisy_net +unknown key"):
        model_of({"noisy_net": True, "model": {"noise": False}})


def test_a_noisy_net_of_a_policy_whose_model_has_no_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="policy.model.noise +unknown key of model 'qrdqn'"):
        model_of({"noisy_net": True}, "qrdqn")
    with pytest.raises(ConfigError, match="policy.model.noise +is True, but this policy draws no noise"):
        model_of({"noisy_net": True}, "pqn")


@pytest.mark.parametrize("path", ["policy.model_type", "policy.learn.model_type", "policy.model.model_type"])
def test_a_model_type_is_the_type_of_the_model(path: str) -> None:
    set_path(tree := {"policy": {}}, path, "rainbowdqn")

    assert model_of(tree["policy"]) == {"type": "rainbowdqn"}
    set_path(tree, path, "no_such_model")
    with pytest.raises(ConfigError, match="policy.model.type"):
        model_of(tree["policy"])


def test_arguments_of_a_model_of_ones_own_are_its_own() -> None:
    own = {"type": "tests.config.test_di_engine_files:OwnModel", "noisy_net": 3, "model_type": "b"}

    assert model_of({"model": own}) == own


class OwnModel(nn.Module):
    """Model with arguments that have names of DI-engine's keys."""

    def __init__(self, obs_shape: Any, action_shape: Any, noisy_net: int = 0, model_type: str = "a") -> None:
        super().__init__()


def test_the_page_on_di_engine_names_every_other_name() -> None:
    page = (Path(__file__).parents[2] / "docs/di_engine_configs.md").read_text()

    pairs = [*RENAMED_KEYS.items(), *MODEL_KEYS.items()]
    names = {path.rpartition(".")[2] for pair in pairs for path in pair}
    assert [name for name in sorted(names) if f"{name}`" not in page] == []


def test_key_without_effect_needs_no_default(create: dict[str, Any], monkeypatch, caplog) -> None:
    monkeypatch.setattr(FakePolicy, "without_effect", {"learn.colour": "a gradient has no colour"}, raising=False)

    cfg = compiled({"learn": {"colour": "red"}}, create)

    assert "colour" not in cfg.policy.learn
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "policy.learn.colour   a gradient has no colour" in record.getMessage()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, "naive"),
        ({"priority": False}, "naive"),
        ({"priority": True}, "advanced"),
        ({"other": {"replay_buffer": {"max_use": 16}}}, "advanced"),
        ({"priority": True, "other": {"replay_buffer": {"type": "naive"}}}, "naive"),
    ],
)
def test_buffer_that_is_not_named_is_the_one_that_is_needed(policy, expected, create, monkeypatch) -> None:
    other = {"replay_buffer": {"replay_buffer_size": 99}}
    monkeypatch.setattr(FakePolicy, "config", {**FakePolicy.config, "priority": False, "other": other})
    del create["replay_buffer"]

    buffer = compiled(policy, create).policy.other.replay_buffer

    assert (buffer.type, buffer.replay_buffer_size) == (expected, 99)


def test_keys_of_another_buffer_are_named(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    create["replay_buffer"] = {"type": "naive"}

    compiled({"other": {"replay_buffer": {"max_use": 16}}}, create)

    assert "policy.other.replay_buffer.max_use   of buffers that count it" in caplog.text


@pytest.mark.parametrize(("kind", "said"), [("naive", True), ("advanced", False)])
def test_priority_that_a_buffer_does_not_know_is_named(kind, said, create, monkeypatch, caplog) -> None:
    monkeypatch.setattr(FakePolicy, "config", {**FakePolicy.config, "priority": False})
    create["replay_buffer"] = {"type": kind}

    with caplog.at_level(logging.INFO, logger="ding_like"):
        compiled({"priority": True}, create)

    assert ("policy.priority   buffer 'naive' samples evenly" in caplog.text) == said


REASONS = {"hook.colour": "a log has no colour", "num_workers": "use num_threads"}


@pytest.fixture(autouse=True)
def _declare(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"num_workers": 2, "hook": {"colour": "red", "save_ckpt_after_iter": 10000}}
    monkeypatch.setattr(FakeLearner, "config", config)
    monkeypatch.setattr(FakeLearner, "without_effect", REASONS, raising=False)


def said(learner: dict[str, Any], create: dict[str, Any], caplog: pytest.LogCaptureFixture, **kwargs: Any) -> list[str]:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        compile_config({"policy": {"learn": {"learner": learner}}, **kwargs}, create, source="some_config.py")
    return [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]


def test_keys_set_in_vain_are_named_in_one_message(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    (message,) = said({"num_workers": 4, "hook": {"colour": "blue"}}, create, caplog)

    assert message.splitlines() == [
        "some_config.py: these keys have no effect",
        "  policy.learn.learner.hook.colour   a log has no colour",
        "  policy.learn.learner.num_workers   use num_threads",
    ]
    assert caplog.records[-1].levelname == "INFO"


def test_a_default_that_is_written_out_is_not_named(create: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert said({"num_workers": 2, "hook": {"colour": "red"}}, create, caplog) == []


def test_settings_of_a_commander_that_are_copies_are_named(create: dict[str, Any], caplog) -> None:
    with caplog.at_level(logging.INFO, logger="ding_like"):
        compile_config({"policy": {"other": {"commander": {"eval_interval": 5}}}}, create)

    assert "policy.other.commander.eval_interval   policy.eval.evaluator.eval_freq says how often" in caplog.text


def test_settings_of_a_parallel_run_that_change_nothing_are_named(tmp_path, caplog) -> None:
    policy = {"on_policy": True, "collect": {"n_sample": 8}, "learn": {}}
    system = {"learner_gpu_num": 2, "coordinator": {"learner_task_timeout": 5, "port": 0}}
    with caplog.at_level(logging.INFO, logger="ding_like"):
        read_system(system, EasyDict(exp_name=str(tmp_path), policy=policy), in_memory=False)
        serial_parts({}, {"collector": {"type": "zergling", "compressor": "lz4"}})

    named = [line.split()[0] for record in caplog.records for line in record.getMessage().splitlines()[1:]]
    assert named == [
        "system.learner_gpu_num",
        "system.coordinator.learner_task_timeout",
        "create_config.collector.compressor",
    ]
    assert all(get_path(SYSTEM_TEMPLATE, path, "absent") != "absent" for path in SYSTEM)
    assert set(PARALLEL_COLLECTOR) <= set(ZerglingParallelCollector.config)
