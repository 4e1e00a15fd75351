"""DI-engine's worker classes, with a coordinator in this process: rows, weights and reports reach the other side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.comm.channels import CollectRequest, Segment
from ding_like.comm.rest import messages as m
from ding_like.comm.tensors import state_of
from ding_like.config import compile_config
from ding_like.data.segment_file import SegmentError
from ding_like.errors import CommError, ConfigError, RegistryError
from ding_like.worker import (
    BaseParallelCollector,
    FlaskFileSystemCollector,
    FlaskFileSystemLearner,
    ZerglingParallelCollector,
    create_comm_collector,
    create_comm_learner,
    create_parallel_commander,
)
from tests.pipeline.parallel.runs import Run, configs, running, small_dqn


def test_a_collector_and_a_learner_train_until_the_limit(make_run: Callable[..., Run]) -> None:
    run = make_run(max_env_step=400, num_collectors=1)
    run.cfg["publish_interval_s"] = 1000.0

    result = run.train()

    assert 400 <= run.core.env_step < 400 + 2 * 16
    assert result["train_iter"] == (run.core.env_step - 32) // 8, "one update for 8 env steps, after 32 at random"
    assert result["last_iter"] == result["train_iter"], "the run ends with the weights trained last"
    assert len(result["eval_value_raw"]) == 20
    for worker in (*run.collectors, run.learner):
        worker.close()
    assert run.core.workers == {}, "both have left"


def test_a_learner_without_a_task_says_so(run: Run) -> None:
    learner = run.new_learner()

    with pytest.raises(CommError, match="has no task"):
        learner.get_data(8)
    learner.close()  # and once more with the run


def test_load_data_fn_refuses_a_file_that_is_not_as_announced(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")

    with pytest.raises(SegmentError):
        FlaskFileSystemLearner.load_data_fn(
            str(tmp_path / "a.safetensors"), {"rows": 1, "sha256": "0" * 64, "nbytes": 8}, None
        )


def test_comm_parts_are_built_by_name(run: Run) -> None:
    cfg = {**run.cfg, "coordinator": "http://127.0.0.1:9", "key_file": None}

    collector, learner = create_comm_collector({**cfg, "type": "flask_fs"}), create_comm_learner(cfg)

    assert isinstance(collector, FlaskFileSystemCollector) and isinstance(learner, FlaskFileSystemLearner)
    assert collector.deal_with_resource()["cpu"] >= 1
    for create in (create_comm_collector, create_comm_learner):
        with pytest.raises(ConfigError, match="has no 'main'"):
            create({"import_names": [], "comm_collector_type": "flask_fs", "comm_learner_type": "flask_fs"})
    for create in (create_comm_collector, create_comm_learner, create_parallel_commander):
        with pytest.raises(RegistryError, match="carrier_pigeon"):
            create({**cfg, "type": "carrier_pigeon"})
    collector.close()
    learner.close()


def test_a_class_that_is_no_part_of_its_kind_is_refused() -> None:
    for create, kind in ((create_comm_collector, "BaseCommCollector"), (create_comm_learner, "BaseCommLearner")):
        with pytest.raises(ConfigError, match=f"is no {kind}"):
            create({"type": "collections:Counter"})


def test_a_commander_is_built_from_its_config_alone() -> None:
    commander = create_parallel_commander({"type": "solo", "stop_value": 1.0})

    assert not commander.finished("eval", {"returns": [2.0], "version": 3})
    assert commander.stop


WIDE = dict(encoder_hidden_size_list=[128, 128])


def train(folder: Path, config: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], Any, Any]:
    """Return the sizes of the files that were published, and the states of a collector and the learner at the end."""
    published: list[int] = []
    with running(folder, config, max_env_step=600, collectors=1) as run:
        run.cfg["weights"] = {"dtype": dtype, "delta": False}
        publish = run.service.publish

        def count(worker_id: str, policy_id: str, message: m.Publish) -> m.Ok:
            published.append(message.nbytes)
            return publish(worker_id, policy_id, message)

        monkeypatch.setattr(run.service, "publish", count)
        run.train()
        collector = run.collectors[0]._collector.policy  # type: ignore[union-attr]
        learner = run.learner.policy
        return published, state_of(collector.collect_mode), state_of(learner.collect_mode)


def test_bfloat16_halves_what_is_published_and_is_what_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configs("dqn", model=WIDE, random_collect_size=60, collect=dict(n_sample=16))
    sizes = {}
    for dtype in ("exact", "bfloat16"):
        published, acting, _ = train(tmp_path / dtype, config, dtype, monkeypatch)
        sizes[dtype] = set(published)
        is_rounded = [torch.equal(each, each.bfloat16().float()) for each in acting.values() if each.ndim == 2]
        assert all(is_rounded) if dtype == "bfloat16" else not any(is_rounded)

    assert len(sizes["exact"]) <= 2, "all versions are of one size, or their numbers have one digit more"
    assert max(sizes["bfloat16"]) < 0.52 * min(sizes["exact"])


# --- the 17 interfaces of `BaseParallelCollector` on the API page

OF_A_TASK = (
    "_setup_timer _setup_logger _iter_after_hook _policy_inference _env_step _process_timestep _finish_task "
    "_update_policy _start_thread _join_thread"
).split()
PAGE = ["__init__", "info", "error", "debug", "get_finish_info", "start", "close", *OF_A_TASK]


class Sink:
    """Order three segments of 8 rows."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    def order(self, *, timeout_s: float) -> CollectRequest:
        done = len(self.segments) == 3
        return CollectRequest(done, 0 if done else 8, 100, None)

    def put(self, segment: Segment) -> CollectRequest:
        self.segments.append(segment)
        return self.order(timeout_s=0.0)


class NoWeights:
    def newest(self, policy_id: str, **_: Any) -> None: ...


def counted(name: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls[name] += 1
        return getattr(ZerglingParallelCollector, name)(self, *args, **kwargs)

    return call


Counting: Any = type(
    "Counting", (ZerglingParallelCollector,), {"calls": Counter(), **{name: counted(name) for name in OF_A_TASK}}
)


def test_the_base_class_has_all_interfaces_of_the_page() -> None:
    assert len(PAGE) == 17
    assert [name for name in PAGE if not callable(getattr(BaseParallelCollector, name, None))] == []
    assert isinstance(BaseParallelCollector.policy, property)


def test_a_task_runs_through_every_hook(in_tmp: Path) -> None:
    sink = Sink()
    cfg = {"main": compile_config(*small_dqn(), seed=0), "seed": 0, "collector_uid": "c0", "index": 0}
    collector = Counting(cfg, sink=sink, reader=NoWeights())

    collector.start({"eval_flag": False, "policy_id": "policy"})

    steps = sum(segment.env_steps for segment in sink.segments) // 2  # of two envs at once
    assert collector.get_finish_info() == {"segments": 3} and steps >= 12
    assert collector.calls == Counter(
        dict.fromkeys(OF_A_TASK, 1)
        | dict.fromkeys(("_policy_inference", "_env_step", "_process_timestep"), steps)
        | dict.fromkeys(("_update_policy", "_iter_after_hook"), 3)
    )
    collector.close()
