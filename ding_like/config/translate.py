"""Read what DI-engine says in one key, and we in several."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ding_like.config.schema import Schema
from ding_like.config.tree import Tree, get_path, set_path

_SCHEDULER = "policy.learn.lr_scheduler"
_SCHEDULE = "policy.learn.schedule"


def translated(main: Mapping[str, Any], schema: Schema) -> Tree:
    """Return a main_config in which `learn.lr_scheduler` has become `learn.schedule`, where a policy has that.

    There the learning rate goes in a straight line to `min_lr_lambda` times its first value, in `epoch_num` train
    calls, each on what was collected for it; ours counts the env steps. What has another form stays where it is, and
    is an unknown key.
    """
    if not schema.knows(f"{_SCHEDULE}.env_steps") or schema.knows(_SCHEDULER):
        return dict(main)
    learn = get_path(main, "policy.learn", {})
    if not isinstance(learn, Mapping) or "lr_scheduler" not in learn:
        return dict(main)
    given = learn["lr_scheduler"]
    rate, n_sample = (
        get_path(main, path, get_path(schema.defaults, path))
        for path in ("policy.learn.learning_rate", "policy.collect.n_sample")
    )
    schedule: Tree | None = None
    if given is None:
        schedule = {}
    elif isinstance(given, Mapping) and set(given) == {"epoch_num", "min_lr_lambda"}:
        numbers = (*given.values(), rate, n_sample)
        if all(isinstance(number, (int, float)) for number in numbers):
            schedule = {"env_steps": int(given["epoch_num"] * n_sample), "lr_end": given["min_lr_lambda"] * rate}
    if schedule is None:
        return dict(main)
    changed = deepcopy(dict(main))
    del changed["policy"]["learn"]["lr_scheduler"]
    for key, value in schedule.items():
        set_path(changed, f"{_SCHEDULE}.{key}", value)
    return changed
