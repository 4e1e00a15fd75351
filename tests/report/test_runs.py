import pytest

from ding_like.errors import ConfigError
from ding_like.report.experiment import read_run
from tests.report.run_folder import RESULT, report, write_run


def test_run_is_read_from_its_folder(tmp_path):
    lines = [report("collector", 100, 9.0), report("learner", 100, 0.0), report("evaluator", 200, 20.0, count=5)]

    run = read_run(write_run(tmp_path / "exp", lines, seed=3, result=RESULT))

    assert (run.name, run.env, run.policy, run.stop_value) == ("exp", "CartPole-v1", "dqn", 475.0)
    assert run.config["seed"] == 3 and run.result["env_step"] == 8000
    assert run.training.env_step.tolist() == [100] and run.training.mean.tolist() == [9.0]
    assert run.evaluation.count.tolist() == [5] and run.evaluation.high.tolist() == [22.0]


def test_what_was_reported_beyond_a_resumed_point_is_void(tmp_path):
    before = [report("collector", step, 1.0) for step in (100, 200, 300, 400)]
    after = [report("collector", step, 2.0) for step in (250, 400, 500)]

    training = read_run(write_run(tmp_path, before + after)).training

    assert training.env_step.tolist() == [100, 200, 250, 400, 500]
    assert training.mean.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_line_that_is_being_written_is_left_out(tmp_path):
    folder = write_run(tmp_path, [report("evaluator", 100, 9.0)])
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"source": "evaluator", "env_s')

    assert read_run(folder).evaluation.env_step.tolist() == [100]


def test_reports_without_a_step_or_a_finite_return_are_left_out(tmp_path):
    lines = [report("evaluator", -1, 9.0), report("evaluator", 100, 1.0), {**report("evaluator", 200, 1.0)}]
    lines[2]["reward_mean"] = "nan"

    assert read_run(write_run(tmp_path, lines)).evaluation.env_step.tolist() == [100]


def test_default_stop_value_stands_for_none(tmp_path):
    run = read_run(write_run(tmp_path, [report("evaluator", 100, 9.0)], stop_value=1e10))

    assert run.stop_value is None


def test_folder_with_metrics_alone_can_be_read(tmp_path):
    folder = write_run(tmp_path, [report("evaluator", 100, 9.0)])
    (folder / "total_config.py").unlink()

    run = read_run(folder)

    assert (run.env, run.policy, run.stop_value, dict(run.result)) == ("", "", None, {})


def test_missing_folder_names_those_that_there_are(tmp_path):
    write_run(tmp_path / "cartpole_seed0", [])

    with pytest.raises(ConfigError, match=r"no experiment folder .*cartpole'\. There are: cartpole_seed0\.$"):
        read_run(tmp_path / "cartpole")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "holds no metrics.jsonl"),
        ("", "has no returns yet"),
        ('{"source": "learner", "env_step": 1}\n', "has no returns yet"),
        ("not json\n", "a line that is no JSON: 'not json'"),
    ],
)
def test_folder_without_a_run_is_one_clear_error(tmp_path, text, words):
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)

    with pytest.raises(ConfigError, match=words):
        read_run(tmp_path)


def test_torn_result_is_one_clear_error(tmp_path):
    folder = write_run(tmp_path, [report("evaluator", 100, 9.0)])
    (folder / "result.json").write_text('{"stop": tr')

    with pytest.raises(ConfigError, match=r"result\.json is no JSON"):
        read_run(folder)
