from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from ding_like.entry.results import plot
from ding_like.entry.results import plot_command as command
from ding_like.errors import ConfigError
from tests.report.run_folder import training_and_evaluation, write_run


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        write_run(tmp_path / f"exp_seed{seed}", training_and_evaluation(), seed=seed)


def test_one_experiment_gets_its_curve_into_its_folder(tmp_path):
    result = CliRunner().invoke(command, ["exp_seed0"])

    assert result.output == "exp_seed0/curve.png\n"
    assert (tmp_path / "exp_seed0" / "curve.png").is_file()


def test_several_experiments_are_compared_here(tmp_path):
    result = CliRunner().invoke(command, ["exp_seed0", "exp_seed1"])

    assert result.output == "compare.png\n"
    assert (tmp_path / "compare.png").is_file()


def test_out_names_the_file(tmp_path):
    result = CliRunner().invoke(command, ["exp_seed0", "exp_seed1", "--out", "here/both.svg"])

    assert result.output == "here/both.svg\n"
    assert "exp (2 seeds, range)" in (tmp_path / "here" / "both.svg").read_text()


def test_experiment_given_twice_counts_once(tmp_path):
    assert plot(["exp_seed0", "exp_seed0"], "curve.svg").name == "curve.svg"

    assert "training, smoothed" in (tmp_path / "curve.svg").read_text()


def test_missing_folder_is_a_config_error():
    with pytest.raises(ConfigError, match=r"no experiment folder 'nope'\. There are: exp_seed0, exp_seed1"):
        plot(["exp_seed0", "nope"])


def test_no_experiment_is_a_config_error():
    with pytest.raises(ConfigError, match="nothing to draw: give plot the folder"):
        plot([])


def test_a_run_with_nothing_yet_is_named_and_the_others_are_drawn(tmp_path, caplog):
    write_run(tmp_path / "young", [])
    write_run(tmp_path / "younger", [])
    (tmp_path / "younger/metrics.jsonl").unlink()

    path = plot(["young", "exp_seed0", "younger"], "both.svg")

    assert path.is_file() and "training, smoothed" in path.read_text(), "the one that is left is drawn in detail"
    assert caplog.messages == [
        "left out: 'young' has no returns yet: no episode has ended in its run.",
        "left out: 'younger' has no returns yet: its run has written nothing.",
    ]


def test_only_runs_with_nothing_yet_are_one_error(tmp_path):
    write_run(tmp_path / "young", [])

    with pytest.raises(ConfigError, match="nothing to draw. 'young' has no returns yet"):
        plot(["young"])


def test_a_folder_that_is_no_run_is_not_left_out(tmp_path):
    (tmp_path / "photos").mkdir()

    with pytest.raises(ConfigError, match="'photos' holds no metrics.jsonl: it is not an experiment folder"):
        plot(["exp_seed0", "photos"])


@pytest.mark.parametrize("picture", ["both.png", "both.svg"])
def test_control_characters_in_a_name_are_drawn_escaped(tmp_path, picture):
    for name in ("a\x1b]0;b", "c\x07"):
        write_run(tmp_path / name, training_and_evaluation(), env_id="CartPole\x1b[31m")

    path = plot(["a\x1b]0;b", "c\x07"], picture)  # matplotlib would warn of them, which is an error here

    if picture == "both.svg":
        shown = "".join(ElementTree.parse(path).getroot().itertext())
        assert r"CartPole\x1b[31m" in shown and r"a\x1b]0;b" in shown


def test_a_dollar_in_a_name_is_no_formula(tmp_path):
    for name in ("a$\\foo{$", "b$"):
        write_run(tmp_path / name, training_and_evaluation())

    assert plot(["a$\\foo{$", "b$"]).is_file()
