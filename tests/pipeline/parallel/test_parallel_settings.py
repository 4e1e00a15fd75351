"""A `system_config` is filled with what works, or refused with what to change."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict

from ding_like.config import compile_config
from ding_like.errors import ConfigError
from ding_like.pipeline.parallel.settings import SystemConfig, WeightSettings, read_system, serial_parts
from ding_like.pipeline.rows import UpdateRatio, least_lead
from tests.pipeline.test_serial import make_configs


def read(
    folder: Path, *, warmup: int = 100, n_sample: int = 8, batch: int = 64, on_policy: bool = False, **system: Any
) -> SystemConfig:
    policy = {
        "on_policy": on_policy,
        "random_collect_size": warmup,
        "collect": {"n_sample": n_sample},
        "learn": {"update_per_collect": 1, "batch_size": batch},
        "other": {"replay_buffer": {"replay_buffer_size": 1000}},
    }
    folders = {"path_data": str(folder / "data"), "path_policy": str(folder / "policy")}
    return read_system({**folders, **system}, EasyDict(exp_name=str(folder), policy=policy))


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (
            dict(segment_row=3, coordinator={"lease": 1}),
            r"(?s)system\.segment_row .*system\.coordinator\.lease ",
        ),
        (dict(max_lead_rows=71), "max_lead_rows is 71.*below 72"),
        (dict(segment_rows=1001), "must fit into the buffer"),
        (dict(n_sample=0), "give policy.collect.n_sample"),
        (dict(weights={"dtype": "float16"}), r"system\.weights\.dtype .*give 'exact' or 'bfloat16'"),
        (dict(weights={"delta": 1}), r"system\.weights\.delta .*expected bool"),
        (dict(weights={"dtyp": "exact"}), r"system\.weights\.dtyp"),
        (dict(weights="bfloat16"), r"system\.weights .*expected a section"),
        *(
            (dict(coordinator={name: value}), rf"system\.coordinator\.{name} ")
            for name in ("lease_ttl_s", "heartbeat_s", "publish_timeout_s", "state_timeout_s")
            for value in (0, -1.0, "10", True, float("nan"))
        ),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, system: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(tmp_path, **system)


def test_hosts_and_ports_of_the_seeds_configs_need_no_answer(tmp_path: Path) -> None:
    found = read(tmp_path, collector0={"host": "auto"}, learner_port=1, coordinator={"port": 7})

    assert found.coordinator.port == 7 and found.coordinator.lease_ttl_s == 10.0


def test_a_segment_is_what_is_collected_at_once_and_the_lead_one_of_each_collector(tmp_path: Path) -> None:
    few, many = read(tmp_path), read(tmp_path, n_sample=96)

    assert (few.segment_rows, few.max_lead_rows) == (64, 3 * 64 + 8) and many.segment_rows == 96
    assert many.max_lead_rows == 3 * 96 + 96


def test_the_lead_reaches_to_the_first_batch_where_there_is_no_warm_up(tmp_path: Path) -> None:
    assert read(tmp_path, warmup=0, batch=128).max_lead_rows == 128 + 3 * 64 + 8
    assert read(tmp_path, max_lead_rows=72).max_lead_rows == 72


def test_with_the_least_lead_neither_side_waits_for_ever() -> None:
    cases = itertools.product((0, 5, 100), (1, 8, 100), (1, 3, 50), (1, 8, 32), (1, 64, 200))
    for warmup, steps, updates, rows, batch in cases:
        lead = least_lead(warmup_steps=warmup, steps=steps, updates=updates, segment_steps=rows, batch_steps=batch)
        ratio = UpdateRatio(warmup, steps, updates, lead)
        env_step = granted = 0
        for _ in range(100):
            before = (env_step, granted)
            if ratio.credit(env_step, granted) >= rows:
                env_step += rows
            if env_step >= batch:
                granted += min(ratio.allowed_updates(env_step) - granted, 16)
            assert (env_step, granted) != before, (warmup, steps, updates, rows, batch)


def test_a_system_part_of_the_seeds_kind_says_how_many_collectors_there_are(tmp_path: Path) -> None:
    seeds = {
        "coordinator": {"operator_server": {}, "collector_task_timeout": 30, "host": "127.0.0.1"},
        "collector0": {"host": "auto", "port": "auto"},
        "collector1": {"host": "auto", "port": "auto"},
        "collector2": {"host": "auto", "port": "auto"},
        "learner0": {"gpu_num": 0},
        "communication_mode": "auto",
        "learner_gpu_num": 0,
    }

    assert read(tmp_path, **seeds).num_collectors == 3
    assert read(tmp_path, **seeds, num_collectors=5).num_collectors == 5
    assert read(tmp_path).num_collectors == 2


def test_on_policy_a_segment_is_a_collectors_share_of_a_batch(tmp_path: Path) -> None:
    assert read(tmp_path, on_policy=True, n_sample=1000, num_collectors=3).segment_rows == 334
    assert read(tmp_path, on_policy=True, n_sample=1000, segment_rows=128).segment_rows == 128


def test_a_create_config_of_the_seeds_kind_is_one_that_compiles() -> None:
    main = {"policy": {"other": {"commander": {"eval_interval": 5, "type": "naive"}}}}
    create = {
        "collector": {"type": "zergling", "import_names": ["ding.worker.collector.zergling_parallel_collector"]},
        "commander": {"type": "solo", "collector_task_space": 2},
        "comm_learner": {"type": "flask_fs"},
    }

    found_main, found_create = serial_parts(main, create)

    commander = {"eval_interval": 5, "type": "naive", "collector_task_space": 2}
    assert found_main == {"policy": {"other": {"commander": commander}}}
    assert found_create == {"comm_learner": {"type": "flask_fs"}} and "collector" in create


def test_a_serial_collector_stays_in_the_config() -> None:
    create = {"collector": {"type": "sample"}}

    assert serial_parts({}, create) == ({}, create)


def test_files_of_a_run_that_may_go_on_lie_in_its_folder(tmp_path: Path) -> None:
    folders = {"path_data": None, "path_policy": None}
    policy = {"on_policy": True, "collect": {"n_sample": 8}, "learn": {}}

    found = read_system(folders, EasyDict(exp_name=str(tmp_path), policy=policy), in_memory=False)

    assert found.own_folder == tmp_path / "files" and found.path_data == tmp_path / "files/data"


def test_weights_travel_exactly_and_whole_unless_said_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path).weights == WeightSettings("exact", delta=False)
    assert read(tmp_path, weights=dict(dtype="bfloat16")).weights == WeightSettings("bfloat16", delta=False)


def test_a_timeout_of_learners_that_means_nothing_is_refused(tmp_path: Path) -> None:
    main, create = make_configs()
    main["learners"] = dict(timeout_s=1e10)
    cfg = compile_config(main, create, save=False, renew_dir=False)
    folders = {"path_data": str(tmp_path / "data"), "path_policy": str(tmp_path / "policy")}

    with pytest.raises(ConfigError, match=r"learners\.timeout_s is 1e\+10, give at most 31536000, a year"):
        read_system({**folders, "num_learners": 2}, cfg)
