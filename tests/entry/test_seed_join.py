"""Machines join a run with central inference, work until it is over, and say why where they cannot."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path

import pytest

from ding_like.comm.keys import client_file, load_seed_keys, make_seed_keys
from ding_like.config import compile_config, read_config
from ding_like.entry.cli import main
from ding_like.entry.seed_entry import join_run
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.seed.runner import config_mark
from tests.entry.scripted_driver import CONFIG, ScriptedDriver
from tests.support import wait_until


def test_actors_join_and_collect_until_the_run_is_over() -> None:
    with ScriptedDriver(rows=300) as driver:
        driver.serve()
        join_run(CONFIG, "actor", address=driver.address, overrides=["system.seed.actor_threads=2"])

        assert driver.is_over.is_set() and not driver.errors
        numbers = sorted(int(name.removeprefix("actor")) for name in driver.came)
        assert len(numbers) == 2 and 100 < numbers[0] < 10_000 and numbers[0] % 100 == 1
        assert numbers[1] == numbers[0] + 1


def test_a_server_joins_and_answers_until_the_run_is_over() -> None:
    with ScriptedDriver(rows=300) as driver:
        driver.act()
        join_run(CONFIG, "inference", address=driver.address)

        assert driver.is_over.is_set() and list(driver.came) == ["actor1"] and not driver.errors


def test_a_run_with_keys_is_joined_with_a_workers_file_alone(tmp_path: Path) -> None:
    make_seed_keys(tmp_path / "keys.json", ["worker"])
    keys = load_seed_keys(tmp_path / "keys.json")
    with ScriptedDriver(rows=100, keys=keys) as driver:
        driver.serve()
        with pytest.raises(CommError, match="has not answered"):
            join_run(CONFIG, "actor", address=driver.address, retry_s=0.5)
        assert not driver.came
        join_run(CONFIG, "actor", address=driver.address, key_file=client_file(tmp_path / "keys.json", "worker"))

        assert driver.is_over.is_set() and sum(driver.came.values()) >= 100


def test_where_the_driver_binds_every_address_a_worker_goes_to_the_one_it_was_given(tmp_path: Path) -> None:
    make_seed_keys(tmp_path / "keys.json", ["worker"])
    keys = load_seed_keys(tmp_path / "keys.json")
    with ScriptedDriver(rows=50, keys=keys, host="0.0.0.0") as driver:
        driver.serve()
        join_run(CONFIG, "actor", address=driver.address, key_file=client_file(tmp_path / "keys.json", "worker"))

        assert driver.is_over.is_set() and driver.came


def test_a_driver_that_is_not_there_is_given_up_with_the_cause() -> None:
    with pytest.raises(
        CommError, match=r"the driver of the run has not answered host\d+ at tcp://127.0.0.1:9 for 0.3 s"
    ):
        join_run(CONFIG, "actor", address="127.0.0.1:9", retry_s=0.3)


@pytest.mark.slow
def test_a_driver_that_ends_without_a_word_is_given_up_after_retry_s() -> None:
    driver = ScriptedDriver(rows=10**9)
    driver.serve()
    killer = threading.Timer(1.0, driver.rows.close)
    killer.start()
    try:
        with pytest.raises(CommError, match="has not answered"):
            join_run(CONFIG, "inference", address=driver.address, retry_s=3.0)
    finally:
        killer.join()
        driver.stop.set()
        driver.close()


@pytest.mark.slow
def test_a_driver_that_was_started_again_is_joined_again() -> None:
    first = ScriptedDriver(rows=10**9)
    first.serve()
    second: list[ScriptedDriver] = []

    def replace() -> None:
        first.close()
        second.append(ScriptedDriver(rows=200, port=first.port))
        second[0].serve()

    timer = threading.Timer(3.0, replace)
    timer.start()
    try:
        join_run(CONFIG, "actor", address=first.address, retry_s=60.0)
    finally:
        timer.join()
        second[0].close()
    assert first.came and second[0].is_over.is_set() and set(second[0].came) == set(first.came)


def test_sigterm_ends_a_worker_without_an_error() -> None:
    with ScriptedDriver(rows=10**9) as driver:
        driver.serve()

        def terminate() -> None:
            wait_until(lambda: driver.came, "rows of the worker")
            os.kill(os.getpid(), signal.SIGTERM)

        user = threading.Thread(target=terminate)
        user.start()
        join_run(CONFIG, "actor", address=driver.address)
        user.join()

        assert not driver.is_over.is_set()


@pytest.mark.slow
def test_an_actor_that_fails_for_good_says_so_here_and_at_the_driver() -> None:
    with ScriptedDriver(rows=10**9) as driver:
        with pytest.raises(CommError, match="no inference server answered"):
            overrides = ["system.seed.request_timeout_s=0.1", "system.seed.failure.restarts_per_10min=0"]
            join_run(CONFIG, "actor", address=driver.address, overrides=overrides)
        assert any(each.role == "actor" for each in driver.rows.sources().values())
        driver.stop.wait(0.2)
    assert re.search(r"actor\d+: CommError", "".join(driver.errors))


def test_a_run_of_another_config_is_not_joined() -> None:
    with ScriptedDriver(rows=1, welcome={"config": {"policy": "sac", "env": "pendulum"}}) as driver:
        with pytest.raises(ConfigError, match="the run is of sac on pendulum, the config of dqn on CartPole-v1"):
            join_run(CONFIG, "actor", address=driver.address)


def mark_of(*overrides: str) -> dict[str, str]:
    file = read_config(CONFIG)
    return config_mark(
        compile_config(file.main_config, file.create_config, overrides=overrides, save=False, renew_dir=False)
    )


def test_a_run_whose_rows_differ_is_not_joined() -> None:
    with ScriptedDriver(rows=1, welcome={"config": mark_of("policy.nstep=1")}) as driver:
        with pytest.raises(ConfigError, match="give -c the driver's config"):
            join_run(CONFIG, "actor", address=driver.address)
    for override in ("policy.discount_factor=0.9", "env.env_id=CartPole-v0"):
        assert mark_of(override) != mark_of()


def test_what_is_each_machines_own_may_differ() -> None:
    for override in ["policy.learn.batch_size=7", "env.collector_env_num=3", "env.stop_value=1"]:
        assert mark_of(override) == mark_of()


def test_an_actor_joins_a_run_whose_servers_have_gpus_that_it_has_not() -> None:
    file = read_config(CONFIG)
    system = dict(seed=dict(inference_device="cuda:7", inference_batchsize=4, inference_delay=0.1))
    with ScriptedDriver(rows=30) as driver:
        driver.serve()
        join_run((file.main_config, file.create_config, system), "actor", address=driver.address)

        assert driver.is_over.is_set()


def test_what_is_no_address_is_one_clear_error() -> None:
    for address in ["", "host", "host:", "host:x", "host:0", "host:99999", ":7000"]:
        with pytest.raises(ConfigError, match="expected HOST:PORT"):
            join_run(CONFIG, "actor", address=address)


def test_a_driver_elsewhere_is_not_joined_without_keys() -> None:
    with pytest.raises(ConfigError, match="no keys.*ding keys --curve"):
        join_run(CONFIG, "actor", address="192.0.2.1:7000")


def test_options_that_make_no_sense_end_the_command_with_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in [
        (["-M", "actor"], "give both"),
        (["--address", "127.0.0.1:1"], "give both"),
        (["--retry-s", "1"], "--retry-s is of workers that join"),
        (["-M", "learner", "--address", "127.0.0.1:1"], "-M learner is not of mode seed"),
        (["-M", "actor", "--address", "127.0.0.1:1", "--port", "7"], "are the driver's"),
        (["-M", "actor", "--address", "127.0.0.1:1", "--retry-s", "0.1"], "has not answered"),
        (["--host", "0.0.0.0"], "without keys anyone there could send rows"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(["-m", "seed", "-c", str(CONFIG), *options])

        assert ended.value.code == 1 and said in capsys.readouterr().err
