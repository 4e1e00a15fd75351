"""Say what the values of `system_config['seed']` may be, which cannot go together, and which change nothing.

Where each default stands is `pipeline/seed/settings.py`; docs/seed.md says what each key does.
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
from ding_like.utils.addresses import OWN_HOST, is_known, is_loopback

PATH = "system.seed"

FROM_0 = Rule("0 or more", lambda it: it >= 0)
FROM_1 = Rule("1 or more", lambda it: it >= 1)
SECONDS_FROM_0 = Rule("seconds, 0 or more", lambda it: 0 <= it < math.inf)
FREQUENCY = Rule("updates a second above 0, or -1 for no limit", lambda it: it == -1 or 0 < it < math.inf)
DEVICE = Rule("'cpu', 'cuda' or 'cuda:0'", lambda it: re.fullmatch(r"cpu|cuda(:\d+)?", it) is not None)

_SECONDS = Rule("seconds above 0", lambda it: 0 < it < math.inf)
_UPDATES = Rule("None for no limit, or 0 or more updates", lambda it: it is None or it >= 0)
_ROWS = Rule("None, or 0 or more rows", lambda it: it is None or it >= 0)

_RULES: Mapping[str, Rule] = {
    "actor_processes": FROM_0,
    "actor_threads": FROM_1,
    "inference_servers": FROM_0,
    "broadcast_period": SECONDS_FROM_0,
    "inference_batchsize": FROM_0,
    "inference_delay": SECONDS_FROM_0,
    "inference_device": DEVICE,
    "minimum_buffer_size": _ROWS,
    "max_train_frequency": FREQUENCY,
    "comm": Rule("'sync' or 'async'", lambda it: it in ("sync", "async")),
    "segment_rows": FROM_0,
    "credit": FROM_1,
    "max_policy_lag": _UPDATES,
    "request_timeout_s": _SECONDS,
    "port": Rule("a port from 1 to 65535, or 0 for any that is free", lambda it: 0 <= it <= 65535),
    "host": Rule(OWN_HOST.removeprefix("give "), is_known),
    "transport": Rule("'ipc' or 'tcp'", lambda it: it in ("ipc", "tcp")),
    "failure.restarts_per_10min": FROM_0,
    "failure.start_timeout_s": _SECONDS,
    "failure.step_timeout_s": _SECONDS,
    "failure.when_spent": Rule("'stop' or 'shrink'", lambda it: it in ("stop", "shrink")),
}

# Of keys whose default is None.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "minimum_buffer_size": (int,),
    "max_policy_lag": (int,),
    "key_file": (str,),
}


def seed_section(defaults: Mapping[str, Any]) -> Section:
    """Return the section with these defaults."""
    return Section(PATH, defaults, _TYPES, _RULES)


def faults_together(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what cannot go together, and what was set although it changes nothing beside the rest."""
    yield from _contradictions(values)
    idle = list(_idle(values))
    for path, value in leaves(values):
        reason = next((why for keys, why in idle if path in keys), "")
        if reason and value != get_path(defaults, path):
            yield Fault(join(PATH, path), f"is {literal(value)}, which changes nothing: {reason}")


def _contradictions(values: Mapping[str, Any]) -> Iterator[Fault]:
    for name in ("actor_processes", "inference_servers"):
        if not values[name] and values["transport"] == "ipc":
            text = "is 0, and none can join from elsewhere: give 1 or more, or system.seed.transport='tcp'"
            yield Fault(f"{PATH}.{name}", text)
    if values["comm"] == "sync" and not values["actor_processes"]:
        text = "is 0, but with comm='sync' the actors of this machine share each round: give 1 or more, or comm='async'"
        yield Fault(f"{PATH}.actor_processes", text)
    if values["comm"] == "async" and values["max_policy_lag"] == 0:
        text = "is 0, but asynchronous rows are older than an update almost always: give 1 or more, or comm='sync'"
        yield Fault(f"{PATH}.max_policy_lag", text)
    if values["transport"] == "tcp" and values["key_file"] is None and not is_loopback(values["host"]):
        text = (
            f"is None, but {values['host']} can be reached from other machines, and without keys anyone there could "
            "send rows: make keys with `ding keys FILE --curve` and name FILE, or set system.seed.host='127.0.0.1'"
        )
        yield Fault(f"{PATH}.key_file", text)


def _idle(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (keys, why they change nothing)."""
    if values["comm"] == "sync":
        yield ("broadcast_period",), "with comm='sync' each round is collected with the newest weights"
        yield ("segment_rows",), "with comm='sync' the actors share n_sample (or n_episode)"
        yield ("credit",), "with comm='sync' each actor has one order at a time"
        yield ("max_policy_lag",), "with comm='sync' each round is collected with the newest weights"
    if values["transport"] == "ipc":
        text = "transport='ipc' joins the processes of this machine by files that only its user can open"
        yield ("host", "port", "key_file"), text
    if not values["inference_servers"]:
        keys = ("inference_batchsize", "inference_delay", "inference_device")
        yield keys, "inference_servers is 0: those that join bring their own"
    if not values["actor_processes"]:
        yield ("actor_threads",), "actor_processes is 0: those that join bring their own"
