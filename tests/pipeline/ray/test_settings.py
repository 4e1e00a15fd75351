"""`system_config['ray']` becomes settings, or one error that names every fault."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict

from ding_like.config import FrozenConfig, compile_config, read_config, to_plain
from ding_like.config.read import take_overrides
from ding_like.config.report import Fault
from ding_like.errors import ConfigError
from ding_like.pipeline.settings import RaySettings, read_ray

CONFIGS = Path(__file__).parents[3] / "dizoo"
CARTPOLE = CONFIGS / "classic_control/cartpole/config"


def compiled(name: str = "cartpole_dqn", *overrides: str, folder: Path = CARTPOLE) -> FrozenConfig:
    file = read_config(folder / f"{name}_config.py")
    return compile_config(file.main_config, file.create_config, overrides=overrides, save=False)


@functools.cache
def dqn() -> FrozenConfig:
    return compiled()


def read(cfg: FrozenConfig | None = None, **ray: Any) -> RaySettings:
    return read_ray({"ray": ray}, cfg or dqn())


def faults_of(cfg: FrozenConfig | None = None, system: Mapping[str, Any] | None = None, **ray: Any) -> list[str]:
    """Return the lines of the error, spaces squeezed, without the title."""
    with pytest.raises(ConfigError) as raised:
        read_ray({"ray": ray} if system is None else system, cfg or dqn())
    return [" ".join(line.split()) for line in str(raised.value).splitlines()[1:]]


def test_without_a_section_two_workers_collect() -> None:
    found = read_ray({}, dqn())

    assert (found.collect.workers, found.grad.workers) == (2, 1)
    assert found.address is None and found.failure.restarts_per_10min == 3


def test_the_policy_decides_whether_collectors_wait_for_each_other() -> None:
    for name, comm in (("cartpole_dqn", "async"), ("cartpole_impala", "async"), ("cartpole_ppo", "sync")):
        assert read(compiled(name)).collect.comm == comm


def test_what_is_given_wins() -> None:
    found = read(
        address="host:6379",
        collect=dict(workers=3, comm="sync", fraction_samples=0.5, fraction_workers=0.75, resources=dict(num_cpus=0.5)),
        grad=dict(workers=2, comm="async", max_staleness=4),
        weights=dict(interval=3),
        failure=dict(when_spent="shrink", step_timeout_s=5),
    )

    assert (found.collect.fraction_samples, found.collect.fraction_workers) == (0.5, 0.75)
    assert (found.collect.resources.num_cpus, found.collect.resources.num_gpus) == (0.5, 0.0)
    assert (found.grad.comm, found.grad.max_staleness, found.weights.interval) == ("async", 4, 3)
    assert (found.failure.when_spent, found.failure.step_timeout_s) == ("shrink", 5.0)


def test_an_easydict_with_the_key_update_is_taken() -> None:
    system = EasyDict(ray=EasyDict(grad=dict(workers=2), update=dict(decentralized=True)))

    assert read_ray(system, dqn()).update.decentralized is True


def test_a_clusters_own_kinds_of_resources_are_taken_by_any_name() -> None:
    assert read(collect=dict(resources=dict(custom=dict(tpu=1)))).collect.resources.custom == {"tpu": 1}


def test_every_fault_is_in_one_error_with_what_is_allowed() -> None:
    found = faults_of(
        collect=dict(worker=3, workers="x", comm="asink", compress=1, fraction_samples=2.0),
        grad=dict(workers=-1, round_timeout_s=0),
        update=dict(device="gpu"),
        failure=dict(when_spent="wait"),
        weight=dict(),
    )

    for fault in (
        "system.ray.collect.worker unknown key; did you mean 'workers' (default 2)?",
        "system.ray.collect.workers expected int, got str 'x'",
        "system.ray.collect.comm is \"asink\"; give 'sync' or 'async'",
        "system.ray.collect.compress expected str or bool, got int 1",
        "system.ray.collect.fraction_samples is 2.0; give a number above 0 and at most 1",
        "system.ray.grad.workers is -1; give 0 or more",
        "system.ray.grad.round_timeout_s is 0.0; give seconds above 0",
        "system.ray.update.device is \"gpu\"; give None for that of policy.cuda, or 'cpu', 'cuda' or 'cuda:0'",
        "system.ray.failure.when_spent is \"wait\"; give 'stop' or 'shrink'",
        "system.ray.weight unknown key; did you mean 'weights' (a section)?",
    ):
        assert fault in found
    assert len(found) == 10


def test_a_section_that_is_none_is_one_fault() -> None:
    for value in (3, "collect", [1]):
        (fault,) = faults_of(system={"ray": value})
        assert fault.startswith("system.ray expected a section, dict(...), got")


NO_EFFECT = [
    (dict(collect=dict(fraction_samples=0.5)), "collect.fraction_samples", "set collect.comm='sync'"),
    (dict(collect=dict(fraction_workers=0.5)), "collect.fraction_workers", "set collect.comm='sync'"),
    (dict(collect=dict(comm="sync", workers=1, fraction_samples=0.5)), "collect.fraction_samples", "no other workers"),
    (dict(collect=dict(comm="sync", fraction_samples=0.5)), "collect.fraction_samples", "fraction_workers below 1 too"),
    (dict(collect=dict(comm="sync", fraction_workers=0.5)), "collect.fraction_workers", "fraction_samples below 1 too"),
    (dict(collect=dict(comm="sync", segment_rows=64)), "collect.segment_rows", "share n_sample"),
    (dict(collect=dict(comm="sync", max_policy_lag=3)), "collect.max_policy_lag", "newest weights"),
    (dict(collect=dict(workers=0, compress=True)), "collect.compress", "no collectors elsewhere"),
    (
        dict(collect=dict(workers=0, resources=dict(num_gpus=1))),
        "collect.resources.num_gpus",
        "no collectors elsewhere",
    ),
    (dict(collect=dict(workers=0), weights=dict(interval=2)), "weights.interval", "no collectors elsewhere"),
    (dict(collect=dict(workers=0), failure=dict(step_timeout_s=9)), "failure.step_timeout_s", "no workers elsewhere"),
    (dict(collect=dict(workers=0), address="host:1"), "address", "no workers elsewhere"),
    (dict(grad=dict(compress=True)), "grad.compress", "this process computes the gradients"),
    (dict(grad=dict(resources=dict(num_gpus=1))), "grad.resources.num_gpus", "this process computes the gradients"),
    (dict(grad=dict(workers=2, max_staleness=3)), "grad.max_staleness", "set grad.comm='async'"),
    (dict(allow_open=True), "allow_open", "set address"),
    (dict(grad=dict(workers=2, staleness="down_weight")), "grad.staleness", "set grad.comm='async'"),
    (dict(grad=dict(workers=2, comm="async", staleness="down_weight")), "grad.staleness", "set grad.max_staleness"),
    (dict(grad=dict(workers=2, comm="async", round_timeout_s=3.0)), "grad.round_timeout_s", "set grad.comm='sync'"),
    (dict(grad=dict(workers=2, comm="async", min_workers=2)), "grad.min_workers", "set grad.comm='sync'"),
    (
        dict(grad=dict(workers=2, compress=True), update=dict(decentralized=True)),
        "grad.compress",
        "sum among themselves",
    ),
]


def test_a_key_without_effect_beside_the_others_is_refused() -> None:
    for ray, path, why in NO_EFFECT:
        (fault,) = faults_of(**ray)
        assert fault.startswith(f"system.ray.{path} is ") and "changes nothing" in fault and why in fault


def test_what_cannot_go_together_is_refused_with_the_reason() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        (dict(update=dict(decentralized=True)), "update.decentralized is True, but there are not several gradient"),
        (dict(grad=dict(workers=2, comm="async"), update=dict(decentralized=True)), "set grad.comm='sync'"),
        (dict(collect=dict(max_policy_lag=0)), "collect.max_policy_lag is 0, but asynchronous rows"),
        (dict(grad=dict(workers=2, min_workers=3)), "grad.min_workers is 3, more than grad.workers, which is 2"),
    ]
    for ray, said in wrong:
        (fault,) = faults_of(**ray)
        assert said in fault


def test_the_keys_of_other_modes_are_refused() -> None:
    (fault,) = faults_of(system={"num_collectors": 3, "ray": {}})

    assert fault == "system.num_collectors is not of mode ray, which reads system.ray alone: leave it out"


def test_gradient_workers_with_a_reward_model_or_an_experts_rows_are_refused() -> None:
    with_model = compiled("cartpole_dqn", "reward_model.type=rnd")
    with_expert = compiled("cartpole_sqil")

    for cfg, path in ((with_model, "reward_model.type is 'rnd'"), (with_expert, "policy.type is 'sqil'")):
        (fault,) = faults_of(cfg, grad=dict(workers=2))
        assert fault.startswith(path) and fault.endswith("set system.ray.grad.workers=1")
        read_ray({"ray": dict(grad=dict(workers=1))}, cfg)


def test_a_league_is_refused() -> None:
    cfg = compiled("tictactoe_dqn", "create.league.type=one_vs_one", folder=CONFIGS / "petting_zoo/config")

    (fault,) = faults_of(cfg)

    assert fault.startswith("policy.other.league chooses opponents by the games that one process plays")


def test_more_collectors_than_rows_to_share_are_refused() -> None:
    cfg = compiled("cartpole_dqn", "policy.collect.n_sample=3")

    assert faults_of(cfg, collect=dict(workers=4, comm="sync")) == [
        "policy.collect.n_sample is 3, fewer than the 4 collectors that share it"
    ]
    assert read(cfg, collect=dict(workers=4, comm="async")).collect.workers == 4


def episodes(number: int) -> FrozenConfig:
    file = read_config(CARTPOLE / "cartpole_dqn_config.py")
    main = to_plain(file.main_config)
    main["env"]["collector_env_num"] = 4
    main["policy"]["collect"].pop("n_sample", None)
    main["policy"]["collect"].update(n_episode=number, collector=dict(get_train_sample=True))
    main["env"]["env_id"] = "CartPole-v1"  # a config that names no module of dizoo is held to every rule
    create = {**to_plain(file.create_config), "env": dict(type="gymnasium"), "collector": dict(type="episode")}
    return compile_config(main, create, save=False)


def test_whole_episodes_are_refused_where_they_cannot_be_collected_so() -> None:
    wrong: list[tuple[int, dict[str, Any], str]] = [
        (
            8,
            dict(comm="sync", fraction_samples=0.5, fraction_workers=0.5),
            "system.ray.collect.fraction_samples is 0.5, but policy.collect.n_episode collects whole episodes, which",
        ),
        (3, dict(comm="sync"), "policy.collect.n_episode is 3, fewer than the 4 envs of a collector"),
        (8, dict(comm="async", segment_rows=3), "system.ray.collect.segment_rows is 3 (of n_episode: episodes), fewer"),
    ]
    for number, collect, said in wrong:
        (fault,) = faults_of(episodes(number), collect=collect)
        assert fault.startswith(said)
        assert read(episodes(8), collect=dict(comm=collect["comm"])).collect.workers == 2


def test_a_warning_says_that_a_round_has_more_episodes_than_are_to_be_shared(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        read(episodes(7), collect=dict(workers=3, comm="sync"))

    assert "n_episode is 7, but each of the 4 envs of 3 collectors plays one at least: a round has 12" in caplog.text


def test_windows_of_rows_are_refused_where_others_collect() -> None:
    file = read_config(CARTPOLE / "cartpole_dqn_config.py")
    create = {
        **file.create_config,
        "policy": dict(type="window_dqn", import_names=["tests.pipeline.learners.window_policy"]),
        "replay_buffer": dict(type="sequence"),
    }
    cfg = compile_config(file.main_config, create, save=False)

    assert read(cfg, collect=dict(workers=0)).collect.workers == 0
    (fault,) = faults_of(cfg)
    assert "learns from windows, but mode ray with collectors fills buffers of rows only" in fault


def test_the_line_of_a_fault_in_a_file_is_named(tmp_path: Path) -> None:
    source = tmp_path / "my_config.py"
    source.write_text("system_config = dict(\n    ray=dict(collect=dict(workers=-1)),\n)\n")

    with pytest.raises(ConfigError, match=r"in my_config\.py\n .*workers +is -1; give 0 or more \(line 2\)"):
        read_ray({"ray": {"collect": {"workers": -1}}}, dqn(), source=str(source))


def test_overrides_of_the_system_part_are_taken_out_and_win() -> None:
    faults: list[Fault] = []
    tree = {"system": {"ray": {"collect": {"workers": 8}}}}
    texts = ["policy.cuda=False", "system.ray.collect.workers=3", "system.ray.address=127"]

    others, applied = take_overrides(texts, tree, faults, section="system")
    found = read_ray(tree["system"], dqn(), overrides=applied)

    assert others == ["policy.cuda=False"] and not faults
    assert (found.collect.workers, found.address) == (3, "127")


def test_a_fault_of_an_override_names_it() -> None:
    tree: dict[str, Any] = {"system": {}}
    _, applied = take_overrides(["system.ray.grad.workers=many"], tree, [], section="system")

    with pytest.raises(ConfigError, match=r"expected int, got str 'many' \(override system\.ray\.grad\.workers=many\)"):
        read_ray(tree["system"], dqn(), overrides=applied)


def test_one_process_may_collect_or_update_ahead() -> None:
    found = read(collect=dict(workers=0, comm="async"), grad=dict(comm="async"))

    assert (found.collect.comm, found.grad.comm) == ("async", "async")


def test_a_class_of_workers_is_a_subclass_of_the_documented_one() -> None:
    with pytest.raises(ConfigError, match=r"system.ray.c_worker.type is 'collections:Counter', .* no subclass of CWor"):
        read(c_worker=dict(type="collections:Counter"))
    assert read(g_worker=dict(type="ding_like.pipeline.ray.workers:GWorker")).g_worker["type"] is not None
