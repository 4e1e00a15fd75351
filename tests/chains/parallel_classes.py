"""Classes named in a config of mode parallel: each documented method appends its name to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ding_like.worker import Coordinator, FlaskFileSystemCollector, FlaskFileSystemLearner
from ding_like.worker.commander import NaiveCommander
from tests.chains.hands import record_hands

LOOPS = (
    "pipeline/collect.py:run",
    "pipeline/parallel/comm_learner.py:_train",
    "comm/rest/rows.py:_run",
    "comm/http_server.py:_answer",
)
# A file is written and read, its name sent and received, its rows numbered and drawn, and copied to the learner.
MOMENTS = (
    "data/segment_file.py:write_segment",
    "data/segment_file.py:read_segment",
    "comm/rest/client.py:send_data",
    "comm/rest/client.py:sample",
    "pipeline/parallel/core/ledger.py:take",
    "pipeline/parallel/core/ledger.py:draw",
    "comm/rest/rows.py:take",
    "comm/rest/rows.py:draw",
)
if "CHAIN_HANDS" in os.environ:  # a process records itself, from before its threads start
    _recording = record_hands(Path(os.environ["CHAIN_HANDS"]), loops=LOOPS, moments=MOMENTS)
    _recording.__enter__()

COORDINATOR = (
    "deal_with_increase_collector",
    "deal_with_collector_send_data",
    "deal_with_collector_finish_task",
    "deal_with_learner_get_data",
    "deal_with_learner_send_info",
    "deal_with_learner_finish_task",
)
LEARNER = (
    "deal_with_resource",
    "deal_with_learner_start",
    "deal_with_get_data",
    "get_data",
    "deal_with_learner_learn",
    "send_policy",
    "send_learn_info",
)
COLLECTOR = (
    "deal_with_resource",
    "deal_with_collector_start",
    "get_policy_update_info",
    "send_stepdata",
    "send_metadata",
    "deal_with_collector_data",
    "deal_with_collector_close",
)


def note(name: str) -> None:
    """Append a call to the file of the run; writes of a line are whole, whichever process makes them."""
    with open(Path(os.environ["CHAIN_CALLS"]), "a", encoding="ascii") as file:
        file.write(f"{name}\n")


def _counted(cls: type, name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(f"{cls.__name__}.{name}")
        return getattr(cls, name)(self, *args, **kwargs)

    return call


class CountedCoordinator(Coordinator):
    locals().update({name: _counted(Coordinator, name) for name in COORDINATOR})


class CountedLearner(FlaskFileSystemLearner):
    locals().update({name: _counted(FlaskFileSystemLearner, name) for name in LEARNER})

    @staticmethod
    def load_data_fn(path: str, meta: dict[str, Any], decompressor: Any) -> Any:
        note("FlaskFileSystemLearner.load_data_fn")
        return FlaskFileSystemLearner.load_data_fn(path, meta, decompressor)


class CountedCollector(FlaskFileSystemCollector):
    locals().update({name: _counted(FlaskFileSystemCollector, name) for name in COLLECTOR})


class CountedCommander(NaiveCommander):
    locals().update({name: _counted(NaiveCommander, name) for name in ("new_tasks", "finished")})


# --- one override each, which changes the run


class DroppingCoordinator(Coordinator):
    """Coordinator that takes every second segment for one that came before."""

    def deal_with_collector_send_data(self, task_id: str, buffer_id: str, data_id: str, data: Any) -> bool:
        if int(data_id.rpartition(".")[2]) % 2:
            note("dropped")
            return False
        return super().deal_with_collector_send_data(task_id, buffer_id, data_id, data)


class OneUpdateLearner(FlaskFileSystemLearner):
    """Comm learner that skips every second batch."""

    _number = 0

    def deal_with_learner_learn(self, data: Any) -> dict[str, Any]:
        self._number += 1
        if self._number % 2:
            return super().deal_with_learner_learn(data)
        note("skipped")
        return {}


class RewardingCollector(FlaskFileSystemCollector):
    """Comm collector that notes what it sends, and sends three env steps for each."""

    def send_metadata(self, metadata: Any) -> Any:
        note("sent")
        return super().send_metadata(type(metadata)(**{**vars(metadata), "env_steps": 3 * metadata.env_steps}))


class ShortCommander(NaiveCommander):
    """Commander that ends the run after 600 env steps, whatever the command says."""

    def is_to_end(self, run: Any) -> bool:
        return super().is_to_end(run) or run.env_step >= 600
