"""Learning gates: fresh episodes of the last models, over seeds, reach a bar within a number of env steps."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.pages import bar_of
from ding_like.config import read_config
from ding_like.entry import parallel_pipeline
from tests import experts
from tests.learning.record import NO_LIMIT, evaluations, record

ROOT = Path(__file__).parents[2]
DIZOO = ROOT / "dizoo"
CARTPOLE = "classic_control/cartpole/config"
ACROBOT = "classic_control/acrobot/config/acrobot_ppo_config.py"
PENDULUM = "classic_control/pendulum/config"
BITFLIP = "bitflip/config/bitflip_her_dqn_config.py"
ONPOLICY = "serial_onpolicy"
TREX = "serial_trex_onpolicy"
OPTIMUM = json.loads((ROOT / "docs/reports/gym_hybrid_moving_optimum.json").read_text())["mean_return"]
OBS_NORM = ("env.wrappers=[{'type': 'obs_norm'}]",)
HIDDEN = ("env.wrappers=[{'type': 'obs_select', 'indices': [0, 2]}, {'type': 'obs_norm'}]",)
NO_VELOCITY = (
    "env.wrappers=[{'type': 'obs_select', 'indices': [0, 1]}, "
    "{'type': 'RescaleObservation', 'min_obs': -3, 'max_obs': 3}]",
)
NO_BONUS = ("reward_model.intrinsic_reward_weight=0", "reward_model.update_per_collect=0")
REVERSED = ("reward_model.type=tests.learning.reversed_ranks:ReversedRanks",)
DREX = ("reward_model.type=drex", "expert.stop_value=140")
NO_HINDSIGHT = ("policy.other.replay_buffer.k=0",)


class Gate(NamedTuple):
    """How a config is trained, and the bar that its seeds reach; with `below`, that they must not reach."""

    config: str
    env_step: int
    bar: float
    mode: str = "serial"
    seeds: int = 3
    episodes: int = 20
    overrides: tuple[str, ...] = ()
    judged: Callable[[list[float]], float] = statistics.median
    below: bool = False
    needs: str = "torch"  # a module that may not be installed
    expert: str | None = None  # of tests/learning/experts.py


def of_cartpole(name: str, env_step: int, bar: float = 475.0, **settings: Any) -> Gate:
    return Gate(f"{CARTPOLE}/cartpole_{name}_config.py", env_step, bar, **settings)


def of_chain(name: str, env_step: int, bar: float = 1.0, **settings: Any) -> Gate:
    return Gate(f"chain/config/chain_{name}_config.py", env_step, bar, **{"seeds": 5, "judged": min, **settings})


SHORT = {
    "dqn": of_cartpole("dqn", 15_000),
    "ppo": of_cartpole("ppo", 20_000, mode=ONPOLICY),
}
GATES = {
    "dqn_per": of_cartpole("dqn_per", 15_000),
    "rainbow": of_cartpole("rainbow", 20_000),
    "c51": of_cartpole("c51", 20_000, seeds=5),
    "qrdqn": of_cartpole("qrdqn", 20_000, seeds=5),
    "iqn": of_cartpole("iqn", 20_000, seeds=5),
    "fqf": of_cartpole("fqf", 20_000, seeds=5),
    "sac": of_cartpole("sac", 60_000),
    "sqn": of_cartpole("sqn", 30_000),
    "mdqn": of_cartpole("mdqn", 30_000),
    "sql": of_cartpole("sql", 30_000),
    "sqil": of_cartpole("sqil", 10_000, seeds=5),
    "dqfd": of_cartpole("dqfd", 10_000, seeds=5),
    "r2d3": of_cartpole("r2d3", 20_000, seeds=5),
    "trex": of_cartpole("trex_ppo", 50_000, 450, mode=TREX, seeds=5),
    "trex, ranks reversed": of_cartpole(
        "trex_ppo", 50_000, 50, mode=TREX, seeds=5, overrides=REVERSED, below=True, judged=max
    ),
    "drex": of_cartpole("trex_ppo", 50_000, 450, mode=TREX, seeds=5, overrides=DREX),
    "pqn": of_cartpole("pqn", 60_000, mode=ONPOLICY),
    "ppo_offpolicy": of_cartpole("ppo_offpolicy", 60_000),
    "impala": of_cartpole("impala", 60_000),
    "pg": of_cartpole("pg", 100_000, mode=ONPOLICY),
    "ppg": of_cartpole("ppg", 40_000, mode=ONPOLICY),
    "ppg_offpolicy": of_cartpole("ppg_offpolicy", 60_000),
    "ppo, every seed": of_cartpole("ppo", 40_000, mode=ONPOLICY, seeds=5, judged=min),
    "a2c, every seed": of_cartpole("a2c", 100_000, mode=ONPOLICY, seeds=5, judged=min),
    "r2d2 without velocities": of_cartpole("hidden_r2d2", 40_000, seeds=5),
    "r2d2 without velocities, every seed": of_cartpole("hidden_r2d2", 60_000, 400, seeds=5, judged=min),
    "drqn": of_cartpole("drqn", 60_000, seeds=5),
    "recurrent ppo without velocities": of_cartpole("hidden_ppo_recurrent", 100_000, 400, mode=ONPOLICY),
    "ppo without memory and velocities": of_cartpole("ppo", 100_000, 150, mode=ONPOLICY, overrides=HIDDEN, below=True),
    "acrobot ppo": Gate(ACROBOT, 150_000, -100, mode=ONPOLICY),
    # In either mode four seeds of ten need more than 60,000 steps, and up to three of them 100,000.
    "acrobot ppo, obs_norm": Gate(ACROBOT, 150_000, -100, mode=ONPOLICY, seeds=5, overrides=OBS_NORM),
    "acrobot ppo, obs_norm, parallel": Gate(ACROBOT, 150_000, -100, mode="parallel", seeds=5, overrides=OBS_NORM),
    "bc, every seed": of_cartpole("bc", NO_LIMIT, mode="serial_bc", seeds=5, expert="cartpole", judged=min),
    "dagger, every seed": of_cartpole("dagger", 3000, seeds=5, expert="cartpole_run", judged=min),
    # The expert returns -142 in 100 episodes, and 15 % less is enough.
    "pendulum bc": Gate(
        f"{PENDULUM}/pendulum_bc_config.py", NO_LIMIT, -163, mode="serial_bc", episodes=100, expert="pendulum"
    ),
    "pendulum sac": Gate(f"{PENDULUM}/pendulum_sac_config.py", 10_000, -200, episodes=100),
    "recurrent sac without velocity": Gate(
        f"{PENDULUM}/pendulum_hidden_sac_recurrent_config.py", 40_000, bar_of("pendulum_hidden"), episodes=100
    ),
    "sac without memory and velocity": Gate(
        f"{PENDULUM}/pendulum_sac_config.py", 10_000, -900, episodes=100, overrides=NO_VELOCITY, below=True
    ),
    "pendulum td3": Gate(f"{PENDULUM}/pendulum_td3_config.py", 10_000, -200, episodes=100),
    "pendulum sqil_sac": Gate(f"{PENDULUM}/pendulum_sqil_sac_config.py", 10_000, -200, seeds=5, episodes=100),
    "pendulum ddpg": Gate(f"{PENDULUM}/pendulum_ddpg_config.py", 10_000, -200, episodes=100),
    "pendulum tqc": Gate(f"{PENDULUM}/pendulum_tqc_config.py", 10_000, -200, episodes=100),
    "pendulum crossq": Gate(f"{PENDULUM}/pendulum_crossq_config.py", 10_000, -200, episodes=100),
    "pendulum d4pg": Gate(f"{PENDULUM}/pendulum_d4pg_config.py", 10_000, -200, episodes=100),
    "bitflip": Gate(BITFLIP, 200_000, 0.95, episodes=100),
    "bitflip without hindsight": Gate(BITFLIP, 20_000, 0.01, episodes=100, overrides=NO_HINDSIGHT, below=True),
    "fetchreach": Gate(
        "robotics/config/fetchreach_her_sac_config.py", 20_000, -4, episodes=50, needs="gymnasium_robotics"
    ),
    "chain rnd": of_chain("rnd_dqn", 30_000),
    "chain icm": of_chain("icm_dqn", 40_000),
    "chain ngu": of_chain("ngu", 30_000),
    "chain without a bonus": of_chain("rnd_dqn", 15_000, 0.1, overrides=NO_BONUS, below=True, judged=max),
    "hybrid ppo": Gate(
        "gym_hybrid/config/gym_hybrid_hppo_config.py", 1_000_000, 0.8 * OPTIMUM, mode=ONPOLICY, episodes=100
    ),
    "r2d2 without velocities, seed": of_cartpole("hidden_r2d2", 40_000, mode="seed", seeds=5, needs="zmq"),
}
ENVS = {
    "acrobot_dqn": ("classic_control/acrobot", "serial", 60_000),
    "mountain_car_dqn": ("classic_control/mountain_car", "serial", 120_000),
    "lunarlander_dqn": ("box2d/lunarlander", "serial", 200_000),
    "lunarlander_ppo": ("box2d/lunarlander", ONPOLICY, 500_000),
    "cliffwalking_dqn": ("cliffwalking", "serial", 40_000),
    "frozen_lake_dqn": ("frozen_lake", "serial", 20_000),
    "taxi_dqn": ("taxi", "serial", 60_000),
}
for _name, (_folder, _mode, _env_step) in ENVS.items():
    GATES[_name] = Gate(f"{_folder}/config/{_name}_config.py", _env_step, bar_of(_name), mode=_mode, episodes=100)
# Modes that may take 1.5 times the env steps of serial, as recorded, and no more.
MOST = 1.5
DISTRIBUTED = {
    "cartpole_dqn_ray": of_cartpole("dqn", 60_000, mode="ray", seeds=5, needs="ray"),
    "cartpole_ppo_ray": of_cartpole("ppo", 60_000, mode="ray", seeds=5, needs="ray"),
    "cartpole_impala_ray": of_cartpole("impala", 60_000, mode="ray", seeds=5, needs="ray"),
    "cartpole_rainbow_seed": of_cartpole("rainbow", 40_000, mode="seed", seeds=5, needs="zmq"),
    "cartpole_dqn_seed": of_cartpole("dqn", 40_000, mode="seed", needs="zmq"),
    "pendulum_sac_seed": Gate(
        f"{PENDULUM}/pendulum_sac_config.py", 20_000, -200, mode="seed", episodes=100, needs="zmq"
    ),
}


def passes(gate: Gate) -> list[dict[str, Any]]:
    """Train the seeds of a gate, fail unless their fresh episodes are as they should be; return their rows."""
    pytest.importorskip(gate.needs)
    rows = record(
        DIZOO / gate.config,
        mode=gate.mode,
        seeds=gate.seeds,
        episodes=gate.episodes,
        env_step=gate.env_step,
        overrides=[*gate.overrides, *experts.overrides_for(read_config(DIZOO / gate.config).main_config)],
        expert=gate.expert,
    )
    values = [row["eval_value"] for row in rows]
    assert (gate.judged(values) < gate.bar) if gate.below else (gate.judged(values) >= gate.bar), (
        f"{gate.config}: mean returns of {values} over {gate.episodes} fresh episodes of {gate.seeds} seeds, after "
        f"{[row['env_step'] for row in rows]} env steps; the bar is {gate.bar:g}. Something that was changed learns "
        "otherwise: docs/learning has what was recorded"
    )
    return rows


def serial_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"docs/learning/{name.rpartition('_')[0]}.json").read_text())
    return found


@pytest.mark.learning
@pytest.mark.learning_short
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SHORT)
def test_cartpole_is_solved(name: str, in_tmp: Path, no_pictures: None) -> None:
    passes(SHORT[name])


@pytest.mark.learning
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", GATES)
def test_the_last_models_reach_the_bar(name: str, in_tmp: Path) -> None:
    passes(GATES[name])


@pytest.mark.learning
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DISTRIBUTED)
def test_the_bar_is_reached_in_one_and_a_half_times_the_env_steps_of_serial(name: str, in_tmp: Path) -> None:
    rows = passes(DISTRIBUTED[name])

    assert statistics.median(row["env_step"] for row in rows) <= MOST * serial_of(name)["median_env_step"]


@pytest.mark.learning
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["exact", "bfloat16"])
@pytest.mark.parametrize("delta", [False, True])
def test_a_parallel_run_learns_whatever_its_weights_travel_as(dtype: str, delta: bool, in_tmp: Path) -> None:
    file = read_config(DIZOO / CARTPOLE / "cartpole_dqn_config.py")
    system = dict(communication_mode="stream", weights=dict(dtype=dtype, delta=delta))

    parallel_pipeline((file.main_config, file.create_config, system), seed=0, exp_name="run", max_env_step=15_000)

    # At random it is 22. The best of a run's evaluations counts, as one run may end in a low.
    assert max(value for _, value in evaluations(Path("run/metrics.jsonl"))) >= 300
