"""Rules for the values of `system_config['ray']`: allowed values, contradictions, and values without effect.

The defaults are in `pipeline/ray/settings.py`; docs/ray.md describes each key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ding_like.config.literal import literal
from ding_like.config.report import Fault
from ding_like.config.section import Rule, Section
from ding_like.config.tree import get_path, join, leaves

PATH = "system.ray"

_FROM_0 = Rule("0 or more", lambda it: it >= 0)
_FROM_1 = Rule("1 or more", lambda it: it >= 1)
_FRACTION = Rule("a number above 0 and at most 1", lambda it: 0 < it <= 1)
_SECONDS = Rule("seconds above 0", lambda it: 0 < it < math.inf)
_COMM = Rule("'sync' or 'async'", lambda it: it in (None, "sync", "async"))
_UPDATES = Rule("None for no limit, or 0 or more updates", lambda it: it is None or it >= 0)
_SHARE = Rule("a number from 0", lambda it: 0 <= it < math.inf)
_MEMORY = Rule("None for no limit, or 1 or more bytes", lambda it: it is None or it >= 1)
_DEVICE = Rule(
    "None for that of policy.cuda, or 'cpu', 'cuda' or 'cuda:0'",
    lambda it: it is None or re.fullmatch(r"cpu|cuda(:\d+)?", it) is not None,
)

_RULES: Mapping[str, Rule] = {
    "collect.workers": _FROM_0,
    "collect.comm": _COMM,
    "collect.fraction_samples": _FRACTION,
    "collect.fraction_workers": _FRACTION,
    "collect.segment_rows": _FROM_0,
    "collect.max_policy_lag": _UPDATES,
    "collect.compress": Rule("'auto', True or False", lambda it: it in ("auto", True, False)),
    "grad.workers": _FROM_0,
    "grad.comm": _COMM,
    "grad.min_workers": _FROM_1,
    "grad.round_timeout_s": _SECONDS,
    "grad.max_staleness": _UPDATES,
    "grad.staleness": Rule("'drop' or 'down_weight'", lambda it: it in ("drop", "down_weight")),
    "update.device": _DEVICE,
    "weights.interval": _FROM_1,
    "failure.restarts_per_10min": _FROM_0,
    "failure.start_timeout_s": _SECONDS,
    "failure.step_timeout_s": _SECONDS,
    "failure.when_spent": Rule("'stop' or 'shrink'", lambda it: it in ("stop", "shrink")),
    **{
        f"{part}.resources.{name}": rule
        for part in ("collect", "grad")
        for name, rule in (("num_cpus", _SHARE), ("num_gpus", _SHARE), ("memory", _MEMORY))
    },
}

# Of keys whose default is None, or that take several types.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "address": (str,),
    "collect.comm": (str,),
    "collect.max_policy_lag": (int,),
    "collect.compress": (str, bool),
    "grad.max_staleness": (int,),
    "update.device": (str,),
    "collect.resources.memory": (int,),
    "grad.resources.memory": (int,),
    "c_worker.type": (str,),
    "g_worker.type": (str,),
    "u_worker.type": (str,),
}

_OF_WORKERS = ("fraction_samples", "fraction_workers")
_FREE = ("collect.resources.custom", "grad.resources.custom")


def ray_section(defaults: Mapping[str, Any]) -> Section:
    """Return the section with these defaults."""
    return Section(PATH, defaults, _TYPES, _RULES, _FREE)


def faults_together(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what cannot go together, and what was set although it changes nothing beside the rest.

    `values` is the whole section; `collect.comm` is not None.
    """
    parts = values["collect"], values["grad"], values["update"]
    yield from _contradictions(*parts)
    idle = list(_idle(*parts))
    if values["address"] is None:
        idle.append((("allow_open",), "the cluster of a run of its own has a token; set address"))
    for path, value in leaves(values):
        if value == get_path(defaults, path):
            continue
        reason = next((why for keys, why in idle if any(path == key or path.startswith(f"{key}.") for key in keys)), "")
        if reason:
            yield Fault(join(PATH, path), f"is {literal(value)}, which changes nothing: {reason}")


def _contradictions(collect: Mapping[str, Any], grad: Mapping[str, Any], update: Mapping[str, Any]) -> Iterator[Fault]:
    if update["decentralized"] and grad["workers"] < 2:
        text = "is True, but there are not several gradient workers that could each take the step: set grad.workers"
        yield Fault(f"{PATH}.update.decentralized", text)
    elif update["decentralized"] and grad["comm"] == "async":
        text = (
            "is True, but with grad.comm='async' the workers' gradients are not those of one step: set grad.comm='sync'"
        )
        yield Fault(f"{PATH}.update.decentralized", text)
    if collect["comm"] == "async" and collect["max_policy_lag"] == 0:
        text = (
            "is 0, but asynchronous rows are older than an update almost always: give 1 or more, or collect.comm='sync'"
        )
        yield Fault(f"{PATH}.collect.max_policy_lag", text)
    if grad["min_workers"] > max(grad["workers"], 1):
        text = f"is {grad['min_workers']}, more than grad.workers, which is {grad['workers']}"
        yield Fault(f"{PATH}.grad.min_workers", text)


def _idle(
    collect: Mapping[str, Any], grad: Mapping[str, Any], update: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (keys or sections, why they change nothing)."""
    fractions = ("collect.fraction_samples", "collect.fraction_workers")
    if not collect["workers"]:
        why = "collect.workers is 0: there are no collectors elsewhere"
        yield tuple(f"collect.{key}" for key in (*_OF_WORKERS, "compress", "resources")), why
        if collect["comm"] != "async":
            yield ("collect.segment_rows", "collect.max_policy_lag", "weights"), why
    elif collect["comm"] == "async":
        yield fractions, "only a synchronous round has others to wait for; set collect.comm='sync'"
    else:
        yield ("collect.segment_rows",), "in a synchronous round the workers share n_sample (or n_episode)"
        yield ("collect.max_policy_lag",), "a synchronous round is collected with the newest weights"
        if collect["workers"] == 1:
            yield fractions, "there are no other workers to wait for"
        elif collect["fraction_samples"] == 1:
            yield fractions[1:], "nobody may stop before all of its rows; set collect.fraction_samples below 1 too"
        elif collect["fraction_workers"] == 1:
            yield fractions[:1], "all workers are waited for; set collect.fraction_workers below 1 too"
    rounds = ("grad.min_workers", "grad.round_timeout_s")
    if grad["workers"] < 2:
        keys = (*rounds, "grad.max_staleness", "grad.staleness", "grad.compress", "grad.resources")
        yield keys, f"grad.workers is {grad['workers']}, so that this process computes the gradients"
    elif grad["comm"] == "async":
        yield rounds, "only synchronous gradients have rounds; set grad.comm='sync'"
        if grad["max_staleness"] is None:
            yield ("grad.staleness",), "any staleness is taken; set grad.max_staleness"
    else:
        yield ("grad.max_staleness", "grad.staleness"), "synchronous gradients are never stale; set grad.comm='async'"
    if update["decentralized"]:
        yield ("grad.min_workers", "grad.compress"), "decentralised updates need all workers, who sum among themselves"
    if not collect["workers"] and grad["workers"] < 2:
        yield ("address", "failure"), "there are no workers elsewhere"
