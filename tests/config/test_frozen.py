"""A frozen config refuses every change and gives mutable copies."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from easydict import EasyDict

from ding_like.config import FrozenConfig, deep_merge, to_plain
from ding_like.errors import ConfigError

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


def test_pickle_keeps_it_frozen() -> None:
    cfg = pickle.loads(pickle.dumps(FrozenConfig(TREE)))

    assert cfg == TREE
    with pytest.raises(ConfigError):
        cfg.b.c.append(1)
    with pytest.raises(ConfigError):
        cfg.b.x = 1


def test_to_plain_gives_plain_containers() -> None:
    plain = to_plain(FrozenConfig(TREE))

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
