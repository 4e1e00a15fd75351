import pytest

from benchmarks.rounds import run_once
from benchmarks.table import BENCHMARKS


@pytest.mark.parametrize(("benchmark", "updates"), [("end_to_end", [25]), ("end_to_end_ppo", [16]), ("collect", [])])
def test_our_contenders_print_rates_updates_and_versions(benchmark, updates):
    rows = run_once(BENCHMARKS[benchmark].contenders["ours"], timeout_s=60, extra=["--steps", "1200"])

    values = {row["metric"]: row["value"] for row in rows if "metric" in row}
    assert values.pop("env_steps_cpu") > 0
    assert values.pop("env_steps_wall") > 0
    assert list(values.values()) == updates
    assert any({"torch", "gymnasium"} <= row.get("versions", {}).keys() for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["envs_subprocess", "envs_subprocess_cartpole", "envs_atari"])
def test_contenders_that_only_step_envs_print_rates(benchmark):
    if benchmark == "envs_atari":
        pytest.importorskip("ale_py")

    for contender in BENCHMARKS[benchmark].contenders.values():
        rows = run_once(contender, timeout_s=60, extra=["--steps", "800"])

        assert {row["metric"] for row in rows if "metric" in row} == {"env_steps_cpu", "env_steps_wall"}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "r2d2"])
def test_our_contenders_of_updates_print_rates_and_versions(policy):
    for contender in BENCHMARKS[f"updates_{policy}"].contenders.values():
        if contender.is_ours:
            rows = run_once(contender, timeout_s=60, extra=["--steps", "20"])

            values = {row["metric"]: row["value"] for row in rows if "metric" in row}
            assert values.keys() == {"updates_cpu", "updates_wall"}
            assert min(values.values()) > 0
            assert any({"torch", "gymnasium"} <= row.get("versions", {}).keys() for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("contender", ["ours_1_learner", "ours_2_learners"])
def test_our_contenders_of_several_learners_print_rates_and_versions(contender):
    rows = run_once(BENCHMARKS["learners_ppo_small"].contenders[contender], timeout_s=90, extra=["--steps", "768"])

    values = {row["metric"]: row["value"] for row in rows if "metric" in row}
    assert values.keys() == {"updates_wall", "env_steps_wall", "updates"}
    assert values["updates"] == 120
    assert values["updates_wall"] > 0 and values["env_steps_wall"] > 0


def test_bars_name_contenders_of_their_benchmark():
    for benchmark in BENCHMARKS.values():
        for bar in benchmark.bars:
            assert {bar.ours, bar.against} <= benchmark.contenders.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "updates"), [("dqn", 24), ("ppo", 16)])
def test_our_contenders_on_pong_print_frames_and_updates(algorithm, updates):
    pytest.importorskip("ale_py")

    rows = run_once(BENCHMARKS[f"atari_{algorithm}"].contenders["ours"], timeout_s=120, extra=["--steps", "1100"])

    values = {row["metric"]: row["value"] for row in rows if "metric" in row}
    assert values["updates"] == updates
    assert values["frames_wall"] == pytest.approx(4 * values["env_steps_wall"], rel=0.01)
