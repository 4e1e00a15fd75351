"""`system_config['seed']` becomes settings, or one error that names every fault; so does the document's Config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from ding_like.config import FrozenConfig, compile_config, read_config
from ding_like.errors import ConfigError
from ding_like.pipeline import seed as exported
from ding_like.pipeline.seed.runner import _warn_of_waits
from ding_like.pipeline.settings import Config, SeedSettings, read_seed

CARTPOLE = Path(__file__).parents[3] / "dizoo/classic_control/cartpole/config"


@cache
def compiled(name: str = "cartpole_dqn", *overrides: str) -> FrozenConfig:
    file = read_config(CARTPOLE / f"{name}_config.py")
    return compile_config(file.main_config, file.create_config, overrides=overrides, save=False)


def read(**seed: Any) -> SeedSettings:
    return read_seed({"seed": seed}, compiled())


def faults_of(cfg: FrozenConfig | None = None, system: Mapping[str, Any] | None = None, **seed: Any) -> list[str]:
    """Return the lines of the error, spaces squeezed, without the title."""
    with pytest.raises(ConfigError) as raised:
        read_seed({"seed": seed} if system is None else system, cfg or compiled())
    return [" ".join(line.split()) for line in str(raised.value).splitlines()[1:]]


def test_without_a_section_two_actors_ask_one_server_over_ipc() -> None:
    found = read_seed({}, compiled())

    assert found == SeedSettings()
    assert (found.num_actors, found.inference_servers, found.comm, found.transport) == (2, 1, "async", "ipc")
    assert (found.failure.restarts_per_10min, found.failure.step_timeout_s) == (30, 60.0)


def test_settings_read_back_as_they_were_saved() -> None:
    found = read(transport="tcp", port=7000, credit=3, minimum_buffer_size=10)

    assert read_seed({"seed": asdict(found)}, compiled()) == found


def test_every_fault_is_in_one_error_with_what_is_allowed() -> None:
    found = faults_of(
        actor_process=3, actor_threads=0, comm="asink", broadcast_period=-1.0, max_train_frequency=0.0,
        inference_device="gpu", transport="udp", port=70000, minimum_buffer_size=10**9, failure=dict(when_spent="wait"),
    )  # fmt: skip

    for fault in (
        "system.seed.actor_process unknown key; did you mean 'actor_processes' (default 2)?",
        "system.seed.actor_threads is 0; give 1 or more",
        "system.seed.comm is \"asink\"; give 'sync' or 'async'",
        "system.seed.broadcast_period is -1.0; give seconds, 0 or more",
        "system.seed.max_train_frequency is 0.0; give updates a second above 0, or -1 for no limit",
        "system.seed.inference_device is \"gpu\"; give 'cpu', 'cuda' or 'cuda:0'",
        "system.seed.transport is \"udp\"; give 'ipc' or 'tcp'",
        "system.seed.port is 70000; give a port from 1 to 65535, or 0 for any that is free",
        "system.seed.failure.when_spent is \"wait\"; give 'stop' or 'shrink'",
    ):
        assert fault in found
    assert any(fault.startswith("system.seed.minimum_buffer_size is 1000000000, more than the") for fault in found)
    assert len(found) == 10


def test_a_key_without_effect_beside_the_others_is_refused() -> None:
    for seed, path, why in (
        (dict(comm="sync", broadcast_period=1.0), "broadcast_period", "newest weights"),
        (dict(comm="sync", segment_rows=8), "segment_rows", "share n_sample"),
        (dict(comm="sync", credit=3), "credit", "one order at a time"),
        (dict(comm="sync", max_policy_lag=8), "max_policy_lag", "newest weights"),
        (dict(host="0.0.0.0"), "host", "transport='ipc'"),  # nothing is bound
        (dict(port=7000), "port", "transport='ipc'"),
        (dict(key_file="keys.json"), "key_file", "transport='ipc'"),
        (dict(transport="tcp", inference_servers=0, inference_delay=0.1), "inference_delay", "bring their own"),
        (dict(transport="tcp", actor_processes=0, actor_threads=2), "actor_threads", "bring their own"),
    ):
        (fault,) = faults_of(**seed)

        assert fault.startswith(f"system.seed.{path} is ") and "changes nothing" in fault and why in fault, seed


def test_what_contradicts_is_refused_with_the_fix() -> None:
    for seed, path, fix in (
        (dict(actor_processes=0), "actor_processes", "set_transport"),
        (dict(inference_servers=0), "inference_servers", "set_transport"),
        (dict(transport="tcp", actor_processes=0, comm="sync"), "actor_processes", "comm='async'"),
        (dict(max_policy_lag=0), "max_policy_lag", "comm='sync'"),
        (dict(transport="tcp", host="10.0.0.1"), "key_file", "ding keys FILE --curve"),
    ):
        (fault,) = faults_of(**seed)

        assert fault.startswith(f"system.seed.{path} is "), seed
        assert fix.replace("set_transport", "system.seed.transport='tcp'") in fault


def test_more_actors_than_rows_of_a_round_are_refused() -> None:
    (fault,) = faults_of(comm="sync", actor_processes=3, actor_threads=3)

    assert fault.startswith("policy.collect.n_sample is 8, fewer than the 9 collectors")


def test_a_league_is_refused() -> None:
    cfg = compiled("cartpole_dqn", "create.league.type=one_vs_one", "create.env_manager.type=game")

    assert any(fault.startswith("policy.other.league") and "`ding -m serial`" in fault for fault in faults_of(cfg))


def test_a_gpu_that_is_not_there_is_refused() -> None:
    (fault,) = faults_of(inference_device=f"cuda:{torch.cuda.device_count()}")

    assert "which torch does not see on this machine: set it to 'cpu'" in fault


def test_batches_that_never_fill_are_warned_of_with_their_cost(caplog: pytest.LogCaptureFixture) -> None:
    for given, warns in (
        (dict(actor_threads=1, inference_batchsize=4, inference_delay=0.1), True),
        (dict(actor_threads=2, inference_batchsize=4, inference_delay=0.1), False),
        (dict(actor_threads=2, inference_batchsize=4, inference_delay=0.1, inference_servers=2), True),
        (dict(actor_threads=1, inference_batchsize=4), False),
        (dict(), False),
    ):
        caplog.clear()

        _warn_of_waits(SeedSettings(**given))

        assert ("batches do not fill" in caplog.text) == warns, given


# --- the document's Config


def test_the_documents_defaults() -> None:
    found = Config()

    assert (found.max_environment_steps, found.n_step, found.epsilon) == (-1, 3, 0.1)
    assert (found.actor_processes, found.actor_threads, found.inference_servers) == (1, 4, 1)
    assert (found.broadcast_period, found.inference_batchsize, found.inference_delay) == (2.5, 4, 0.1)
    assert (found.inference_device, found.minimum_buffer_size) == (torch.device("cpu"), 1000)
    assert found.max_train_frequency == -1


def test_every_field_of_the_document_is_positional_in_its_order() -> None:
    found = Config(100, 5, 0.2, 2, 3, 4, 1.5, 8, 0.2, torch.device("cpu"), 50, 10.0)

    assert found.system() == dict(
        actor_processes=2, actor_threads=3, inference_servers=4, broadcast_period=1.5, inference_batchsize=8,
        inference_delay=0.2, inference_device="cpu", minimum_buffer_size=50, max_train_frequency=10.0,
    )  # fmt: skip
    assert read(**found.system()).inference_servers == 4


def test_a_config_names_all_its_faults() -> None:
    with pytest.raises(ConfigError) as raised:
        Config(max_environment_steps=0, n_step=1.5, epsilon=2.0, actor_threads=0, inference_device="tpu")  # type: ignore[arg-type]

    for fault in (
        "max_environment_steps is 0; give 1 or more env steps, or -1 for no limit",
        "n_step expected int, got float 1.5",
        "epsilon is 2.0; give a probability from 0 to 1",
        "actor_threads is 0; give 1 or more",
        "inference_device is \"tpu\"; give 'cpu', 'cuda' or 'cuda:0'",
    ):
        assert fault in str(raised.value)


def test_the_package_exports_the_documents_names() -> None:
    names = "Config Trainer Actor InferenceServer InferenceClient InferenceProxy Broadcaster".split()

    assert [getattr(exported, name).__name__ for name in names] == names
    with pytest.raises(AttributeError, match="exports Config, Trainer"):
        exported.Nothing  # noqa: B018
