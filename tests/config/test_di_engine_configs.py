"""Configs written for DI-engine run as they are: what has no use here is named once, what is misspelt is an error."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ding_like.config import compile_config
from ding_like.config.legacy import RENAMED_KEYS
from ding_like.config.tree import get_path, leaves
from ding_like.entry import serial_pipeline, serial_pipeline_onpolicy
from ding_like.errors import ConfigError
from ding_like.policy import get_policy_cls
from ding_like.utils.registries import POLICY_REGISTRY
from tests.config.di_engine_configs import CONFIGS, Pair

# The policies that there are; the others of CONFIGS are to come.
POLICIES = [
    *("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "r2d2", "drqn", "discrete_sac"),
    *("impala", "pg", "ppo", "ppo_offpolicy", "ppg", "a2c"),
]
_ABSENT = object()


def _copy(name: str) -> Pair:
    return Pair(*copy.deepcopy(CONFIGS[name]))


def test_the_list_holds_every_policy_that_there_is() -> None:
    assert sorted(name for name in CONFIGS if name in POLICY_REGISTRY) == sorted(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_every_key_is_taken_over_or_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    main, create = _copy(name)

    with caplog.at_level(logging.INFO, logger="ding_like"):
        cfg = compile_config(main, create, source=f"cartpole_{name}_config.py", save=False)

    said = {line.split()[0] for message in caplog.messages for line in message.splitlines()[1:]}
    assert len(caplog.messages) == len(set(caplog.messages)) <= 2, "one message about keys ignored, one about no effect"
    lost = [path for path, value in leaves(main) if not _is_taken(cfg, path, value) and not said & _prefixes(path)]
    assert lost == []


def _is_taken(cfg: Any, path: str, value: Any) -> bool:
    """Tell whether a value stands where the config says, or where the key stands here."""
    return any(get_path(cfg, place, _ABSENT) == value for place in (path, RENAMED_KEYS.get(path, path)))


def _prefixes(path: str) -> set[str]:
    keys = path.split(".")
    return {".".join(keys[:end]) for end in range(1, len(keys) + 1)}


@pytest.mark.parametrize("name", POLICIES)
def test_a_misspelt_key_is_an_error_with_a_suggestion(name: str) -> None:
    main, create = _copy(name)
    learn = main["policy"]["learn"]
    learn["batch_sise"] = learn.pop("batch_size")

    with pytest.raises(
        ConfigError, match=r"policy\.learn\.batch_sise +unknown key; did you mean 'batch_size'"
    ) as raised:
        compile_config(main, create, save=False)

    assert str(raised.value).startswith("1 problem in")


@pytest.mark.parametrize("name", POLICIES)
def test_it_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main, create = _copy(name)
    is_on_policy = get_policy_cls(create["policy"]).default_config().on_policy
    pipeline = serial_pipeline_onpolicy if is_on_policy else serial_pipeline

    pipeline((main, create), seed=0, max_train_iter=20, max_env_step=20_000)

    result = json.loads((tmp_path / f"cartpole_{name}_seed0" / "result.json").read_text())
    assert result["train_iter"] >= 20
    assert result["eval_value"] >= 8  # CartPole falls no earlier
