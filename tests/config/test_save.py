"""A saved config runs again and compiles to an equal one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.config.tree import literal
from ding_like.errors import ConfigError

FILES = ("total_config.py", "formatted_total_config.py")


def compiled_again(path: Path, **kwargs: Any) -> FrozenConfig:
    saved = read_config(path)
    return compile_config(saved.main_config, saved.create_config, renew_dir=False, save=False, **kwargs)


@pytest.mark.parametrize("name", FILES)
def test_saved_file_compiles_to_an_equal_config(create: dict[str, Any], name: str) -> None:
    create["policy"]["type"] = "cfg_fake_command"
    main = {
        "exp_name": "deep/run",
        "env": {"stop_value": float("inf"), "kwargs": {"x": -float("inf"), "size": (3,), "name": 'it\'s "so"\n'}},
        "policy": {"unroll_len": 4, "collect": {"n_episode": 3}, "model": {"hidden": [128, 64]}},
    }

    cfg = compile_config(main, create, seed=7, overrides=["policy.learn.batch_size=8"])

    assert compiled_again(Path("deep/run") / name) == cfg


def test_saved_name_is_the_one_of_the_folder(create: dict[str, Any]) -> None:
    compile_config({"exp_name": "run"}, create)
    cfg = compile_config({"exp_name": "run"}, create)

    assert read_config(Path(cfg.exp_name) / "total_config.py").main_config["exp_name"] == cfg.exp_name


def test_formatted_file_tells_which_values_are_overrides(create: dict[str, Any]) -> None:
    overrides = ["policy.learn.batch_size=8", "create.env.type=cfg_open"]

    compile_config({"exp_name": "run"}, create, overrides=overrides)

    text = Path("run/formatted_total_config.py").read_text()
    assert '"batch_size": 8,  # override: "policy.learn.batch_size=8"\n' in text
    assert '"type": "cfg_open",  # override: "create.env.type=cfg_open"\n' in text


def test_diff_lists_exactly_what_differs_from_the_defaults(create: dict[str, Any]) -> None:
    main = {"exp_name": "run", "env": {"stop_value": 475}, "policy": {"nstep": 1, "learn": {"batch_size": 8}}}

    compile_config(main, create, seed=3)

    rows = [line.split() for line in Path("run/config_diff.txt").read_text().splitlines()]
    assert rows[0] == ["key", "default", "value"]
    changed = {row[0]: row[1:] for row in rows[1:] if not row[0].endswith(".type")}
    assert changed == {
        "exp_name": ['"default_experiment"', '"run"'],
        "seed": ["0", "3"],
        "env.stop_value": ["10000000000.0", "475.0"],
        "policy.learn.batch_size": ["64", "8"],
        "policy.eval.evaluator.stop_value": ["10000000000.0", "475.0"],
    }


def test_folder_that_cannot_be_written_is_told(create: dict[str, Any]) -> None:
    Path("run").mkdir()
    (Path("run") / "total_config.py").mkdir()

    with pytest.raises(ConfigError, match=r"cannot write total_config.py in 'run'"):
        compile_config({"exp_name": "run"}, create, renew_dir=False)


KEYS = st.from_regex(r"[a-z][a-z0-9_/ é'\"-]{0,8}", fullmatch=True).filter(lambda key: not hasattr(dict, key))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.binary(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)
TREES = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_any_free_section_survives_saving_and_reading(create: dict[str, Any], tree: dict[str, Any]) -> None:
    cfg = compile_config({"exp_name": "run", "policy": {"model": tree}}, create, renew_dir=False)

    for name in FILES:
        # As text: NaN is not equal to itself.
        assert literal(compiled_again(Path("run") / name)) == literal(cfg)
