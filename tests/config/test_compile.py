"""A compiled config is the defaults of the named classes, then the user's; every fault is in one error."""

from __future__ import annotations

import copy
import logging
import math
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from ding_like.config import FrozenConfig, compile_config, deep_merge, read_config, to_plain
from ding_like.config.schema import ENV_BOUNDS, ENV_TEMPLATE, PARTS, TOP_BOUNDS, TOP_TEMPLATE, class_defaults
from ding_like.config.tree import get_path, leaves
from ding_like.envs import AsyncSubprocessEnvManager, BaseEnvManager
from ding_like.errors import ConfigError, EnvError
from ding_like.policy import DQNPolicy, PPOPolicy
from ding_like.utils.bounds import ABOVE_0, ANY_NUMBER, FINITE, FROM_1, SHARE, SHARE_ABOVE_0, Bounds, declared
from ding_like.worker import (
    AdvancedReplayBuffer,
    BaseLearner,
    EpisodeSerialCollector,
    InteractionSerialEvaluator,
    SampleSerialCollector,
)
from ding_like.worker.replay_buffer.presets import PresetBuffer
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


def test_env_settings_are_copied_to_the_evaluator(create: dict[str, Any]) -> None:
    create["policy"]["type"] = "cfg_fake_command"
    cfg = compiled({"env": {"stop_value": 475, "n_evaluator_episode": 20}}, create)

    assert cfg.policy.type == "cfg_fake", "the suffix names the plain policy"
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
def test_key_that_hides_a_dict_method_is_refused_also_in_free_sections(create, wrap) -> None:
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


def test_keys_of_di_engine_without_use_get_one_warning(create: dict[str, Any], caplog) -> None:
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
    on_policy, n_sample, batch_size, create, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(FakePolicy, "config", {**FakePolicy.config, "on_policy": on_policy})

    compiled({"policy": {"collect": {"n_sample": n_sample}, "learn": {"batch_size": batch_size}}}, create)

    # Each of the 8 envs takes the same number of steps.
    assert ("holds at most the 8 rows" in caplog.text) == (on_policy and batch_size == 9)


TREE = {"a": 1, "b": {"c": [1, {"d": 2}]}, "t": ({"e": 3},)}


CHANGES: list[Callable[[Any], Any]] = [
    lambda cfg: setattr(cfg, "a", 2),
    lambda cfg: delattr(cfg, "a"),
    lambda cfg: operator.setitem(cfg, "a", 2),
    lambda cfg: operator.delitem(cfg, "a"),
    lambda cfg: operator.ior(cfg, {"a": 2}),
    lambda cfg: operator.iadd(cfg.b.c, [1]),
    lambda cfg: cfg.update(a=2),
    lambda cfg: cfg.pop("a"),
    lambda cfg: cfg.popitem(),
    lambda cfg: cfg.setdefault("z", 1),
    lambda cfg: cfg.setdefault("a", 1),
    lambda cfg: cfg.clear(),
    lambda cfg: setattr(cfg.b, "new", 1),
    lambda cfg: cfg.b.c.append(1),
    lambda cfg: cfg.b.c.sort(),
    lambda cfg: setattr(cfg.b.c[1], "d", 3),
    lambda cfg: setattr(cfg.t[0], "e", 4),
]


def test_every_change_is_refused() -> None:
    for change in CHANGES:
        cfg = FrozenConfig(TREE)

        with pytest.raises(ConfigError, match="the config is frozen"):
            change(cfg)

        assert cfg == TREE


def test_it_reads_like_an_easydict() -> None:
    cfg = FrozenConfig(TREE)

    assert cfg.b.c[1].d == 2
    assert cfg.get("nothing", 5) == 5
    assert isinstance(cfg, EasyDict)
    assert isinstance(cfg.b.c, list)


@pytest.mark.parametrize("make", [copy.deepcopy, FrozenConfig.copy])
def test_copy_is_a_mutable_easydict_all_the_way_down(make: Callable[[FrozenConfig], Any]) -> None:
    cfg = FrozenConfig(TREE)
    mutable = make(cfg)

    mutable.b.c[1].d = 7
    mutable.b.c.append(1)
    mutable.new = 1

    assert type(mutable) is EasyDict
    assert cfg == TREE


def test_pickle_keeps_it_frozen_and_to_plain_gives_plain_containers() -> None:
    cfg = pickle.loads(pickle.dumps(FrozenConfig(TREE)))
    plain = to_plain(cfg)

    assert cfg == TREE
    with pytest.raises(ConfigError):
        cfg.b.c.append(1)
    with pytest.raises(ConfigError):
        cfg.b.x = 1

    assert plain == TREE
    assert (type(plain), type(plain["b"]), type(plain["b"]["c"])) == (dict, dict, list)
    assert type(plain["b"]["c"][1]) is dict


def test_deep_merge_lets_the_user_win_and_keeps_the_rest() -> None:
    merged = deep_merge({"a": {"x": 1, "y": 2}, "b": 1}, EasyDict(a=dict(y=3, z=4), b=dict(c=1)))

    assert merged == {"a": {"x": 1, "y": 3, "z": 4}, "b": {"c": 1}}


def test_deep_merge_shares_nothing_with_its_inputs() -> None:
    default: dict[str, Any] = {"a": {"x": [1]}}
    user: dict[str, Any] = {"b": {"y": [2]}}

    merged = deep_merge(default, user)
    merged["a"]["x"].append(1)
    merged["b"]["y"].append(1)

    assert (default, user) == ({"a": {"x": [1]}}, {"b": {"y": [2]}})


MAIN: dict[str, Any] = dict(
    exp_name="run",
    env=dict(env_id="CartPole-v1", stop_value=100, n_evaluator_episode=3, evaluator_env_num=3),
    policy=dict(nstep=3, learn=dict(batch_size=16)),
)
CREATE: dict[str, Any] = dict(
    env=dict(type="gymnasium"),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
    replay_buffer=dict(type="advanced"),
)


def of_classes(main: Any = None, **kwargs: Any) -> Any:
    return compile_config(
        MAIN if main is None else main,
        BaseEnvManager,
        DQNPolicy,
        BaseLearner,
        SampleSerialCollector,
        InteractionSerialEvaluator,
        AdvancedReplayBuffer,
        **{"save_cfg": False, **kwargs},
    )


def test_classes_give_what_their_names_in_create_config_give() -> None:
    named = to_plain(compile_config(MAIN, CREATE, save=False))

    of_script = to_plain(of_classes())

    assert {key: of_script[key] for key in ("policy", "seed")} == {key: named[key] for key in ("policy", "seed")}


def test_the_env_section_of_a_script_takes_any_key() -> None:
    cfg = of_classes({**MAIN, "env": dict(MAIN["env"], my_own_key=3, manager=dict(shared_memory=True))})

    assert cfg.env.my_own_key == 3 and cfg.env.collector_env_num == 8
    assert cfg.policy.eval.evaluator.n_episode == 3 and cfg.policy.eval.evaluator.stop_value == 100


def test_a_typing_error_is_found_all_the_same() -> None:
    with pytest.raises(ConfigError, match="batchsize.*did you mean 'batch_size'"):
        of_classes({**MAIN, "policy": dict(learn=dict(batchsize=3))})


def test_create_cfg_by_keyword_gives_the_same_as_our_form() -> None:
    ours = compile_config(MAIN, CREATE, seed=5, save=False)

    theirs = compile_config(MAIN, seed=5, auto=True, create_cfg=CREATE, save_cfg=False)

    assert to_plain(theirs) == to_plain(ours)


def test_what_a_script_gets_can_be_changed_and_ours_cannot() -> None:
    cfg = of_classes()
    cfg.policy.learn.batch_size = 3

    assert cfg.policy.learn.batch_size == 3
    assert isinstance(compile_config(MAIN, CREATE, save=False), FrozenConfig)


def test_classes_by_keyword_and_left_out_ones_are_the_usual() -> None:
    cfg = compile_config({"exp_name": "run"}, policy=PPOPolicy, env_manager=AsyncSubprocessEnvManager, save_cfg=False)

    assert (cfg.policy.type, cfg.env.manager.type) == ("ppo", "subprocess")
    assert cfg.policy.collect.collector.type == "sample"


def test_a_collector_of_another_kind_is_named() -> None:
    main = {**MAIN, "policy": dict(collect=dict(n_episode=4))}

    cfg = compile_config(main, BaseEnvManager, DQNPolicy, collector=EpisodeSerialCollector, save_cfg=False)

    assert cfg.policy.collect.collector.type == "episode"


class OwnDQN(DQNPolicy):
    config = dict(learn=dict(batch_size=48))


def test_a_class_that_is_not_registered_brings_its_defaults() -> None:
    cfg = compile_config({"exp_name": "run"}, BaseEnvManager, OwnDQN, save_cfg=False)

    assert cfg.policy.type == "OwnDQN" and cfg.policy.learn.batch_size == 48


def test_the_config_is_saved_and_says_that_the_script_made_the_envs() -> None:
    cfg = of_classes(save_cfg=True)
    saved = read_config(Path(cfg.exp_name) / "total_config.py")

    from ding_like.envs import make_env

    with pytest.raises(EnvError, match="script that makes its envs itself"):
        make_env(saved.main_config["env"] | {"type": saved.create_config["env"]["type"]})


def test_without_a_policy_the_error_names_both_ways() -> None:
    with pytest.raises(ConfigError, match="create_cfg=create_config"):
        compile_config(MAIN, auto=True)
    with pytest.raises(ConfigError, match="create_cfg names none"):
        compile_config(MAIN, auto=True, create_cfg=dict(env=dict(type="gymnasium")))


def test_an_object_in_the_place_of_a_class_is_an_error() -> None:
    with pytest.raises(ConfigError, match="a class for learner, got str 'base'"):
        compile_config(MAIN, BaseEnvManager, DQNPolicy, "base", save_cfg=False)  # type: ignore[arg-type]


def registered() -> Iterator[tuple[str, type[Any]]]:
    for part in PARTS:
        for name in part.registry.names():
            cls = part.registry.get(name)
            if cls.__module__.startswith("ding_like."):  # other tests register what is only theirs
                yield f"{part.name} {name}", cls


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_every_number_of_a_class_has_bounds_that_its_default_keeps() -> None:
    buffer = {
        f"other.replay_buffer.{path}": each for path, each in declared(PresetBuffer, "config_bounds").items()
    }  # a policy's section
    wrong = {}
    for name, cls in registered():
        bounds = declared(cls, "config_bounds") | buffer
        defaults = dict(leaves(class_defaults(cls)))
        typed = {path for path, types in declared(cls, "config_types").items() if {int, float} & set(types)}
        without = {path for path, value in defaults.items() if is_number(value)} | typed
        outside = {path: value for path, value in defaults.items() if path in bounds and not bounds[path].hold(value)}
        if without - bounds.keys() or outside:
            wrong[name] = without - bounds.keys(), outside

    assert not wrong


def test_what_no_class_has_is_bounded_too() -> None:
    top = {path for path, value in leaves(TOP_TEMPLATE) if is_number(value)}
    env = {path for path, value in leaves(ENV_TEMPLATE) if is_number(value)}

    assert {path for path in TOP_BOUNDS if get_path(TOP_TEMPLATE, path) is not None} == top
    assert ENV_BOUNDS.keys() == env


BOUNDS: list[tuple[Bounds, list[float], list[float], str]] = [
    (FROM_1, [1, 7, 1e9], [0, -1, 0.5, math.nan, math.inf], "1 or more"),
    (ABOVE_0, [1e-9, 3], [0, -1e-9, math.inf, math.nan], "a number above 0"),
    (SHARE, [0, 0.5, 1], [-0.1, 1.1, math.nan], "a number from 0 to 1"),
    (SHARE_ABOVE_0, [1e-3, 1], [0, 1.1, math.nan], "a number above 0 and at most 1"),
    (FINITE, [-5, 0, 5], [math.inf, -math.inf, math.nan], "a finite number"),
    (ANY_NUMBER, [-5, math.inf, -math.inf], [math.nan], "a number"),
    (Bounds(1, also=(-1,)), [-1, 1], [0, -2], "-1, or 1 or more"),
    (Bounds(1, may_be_infinite=True), [1, math.inf], [0, math.nan], "1 or more"),
]


def test_bounds_hold_what_they_say() -> None:
    for bounds, inside, outside, text in BOUNDS:
        assert all(map(bounds.hold, inside)), text
        assert not any(map(bounds.hold, outside)), text
        assert str(bounds) == text


def bound_faults_of(**policy: Any) -> str:
    main = {"env": {"env_id": "CartPole-v1"}, "policy": policy}
    return faults_of(main, {"env": {"type": "gymnasium"}, "policy": {"type": "dqn"}})


def test_all_numbers_out_of_range_are_one_error_with_value_range_and_default() -> None:
    text = bound_faults_of(discount_factor=1.7, learn={"learning_rate": -1.0, "update_per_collect": 0})

    assert "3 problems" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "policy.discount_factor is 1.7; give a number from 0 to 1 (default 0.97)" in rows
    assert "policy.learn.learning_rate is -1.0; give a number above 0 (default 0.001)" in rows
    assert "policy.learn.update_per_collect is 0; give a number from 1 to 1e+06 (default 3)" in rows


def refusal_of(*overrides: str, policy: str = "dqn") -> str:
    main, create = {"env": {"env_id": "CartPole-v1"}, "policy": {}}, {"env": {"type": "gymnasium"}}
    text = faults_of(main, {**create, "policy": {"type": policy}}, overrides=overrides, builds_model=True)
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("policy.collect.n_sample=1e9", "is 1000000000; give a number from 1 to 1e+07"),
        ("env.collector_env_num=1e9", "is 1000000000; give a number from 1 to 1e+06 (default 8)"),
        ("env.n_evaluator_episode=1e9", "is 1000000000; give a number from 1 to 1e+06 (default 4)"),
        ("policy.learn.target_update_freq=None", "the target network would never change; give 1 or more updates"),
        ("policy.model.dueling=off", "policy.model.dueling is 'off'; give True or False"),
        ("policy.model.head_layer_num=[3]", "policy.model.head_layer_num is [3]; give a whole number"),
    ],
)
def test_what_can_only_be_a_slip_is_refused_before_the_run(override: str, words: str) -> None:
    assert words in refusal_of(override)


def test_a_buffer_that_never_holds_a_batch_is_refused() -> None:
    text = bound_faults_of(learn={"batch_size": 64}, other={"replay_buffer": {"replay_buffer_size": 63}})

    assert "is 63, fewer than the 64 of policy.learn.batch_size" in text
    assert "give 64 or more" in text
