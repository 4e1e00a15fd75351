"""`ding list`, `ding info` and `ding diff`: what is shipped, what it returned, and how two runs differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ding_like.entry.catalogue import modes_of, papers_of, read_shipped
from ding_like.entry.differences import diff
from ding_like.entry.modes import MODES, load, shipped_configs
from ding_like.errors import ConfigError
from ding_like.policy import get_policy_cls
from ding_like.report.recorded import FILE, read_recorded, summaries, summarise
from ding_like.utils.registries import POLICY_REGISTRY
from tests.docs.test_walked_pages import own_modules
from tests.entry.typed import status_of
from tests.report.run_folder import RESULT, training_and_evaluation, write_run, write_seeds

pytestmark = pytest.mark.usefixtures("in_tmp")

DOCS = Path(__file__).parents[2] / "docs"


def test_what_the_package_holds_of_the_records_is_fresh() -> None:
    files = [path for folder in ("learning", "results") for path in (DOCS / folder).glob("*.json")]
    records = {path.stem: json.loads(path.read_text()) for path in files}

    assert len(records) > 80
    assert FILE.read_text() == summaries(records), "run `python -m benchmarks.pages`"


def test_a_record_is_summarised_by_its_medians() -> None:
    runs = [
        {"eval_value": value, "env_step": 10 * value, "train_iter": 7, "wall_s": value / 10} for value in (30, 10, 80)
    ]
    record = {"config": "cartpole_dqn_config.py", "mode": "serial", "overrides": [], "runs": runs}

    found = summarise("x", record)

    assert found is not None and (found.config, found.seeds, found.median) == ("cartpole_dqn", 3, 30)
    assert (found.score, found.cost) == ("30 [10, 80]", "300 env steps, 0:00:03")
    assert summarise("x", {"variants": []}) is None
    assert summarise("x", {**record, "overrides": ["reward_model.type=tests.learning.x:X"]}) is None


def test_every_shipped_config_is_listed_with_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("list") == 0

    lines = capsys.readouterr().out.splitlines()
    plain = read_recorded()["cartpole_dqn"][0]
    shown = next(line for line in lines if line.startswith("cartpole_dqn "))
    assert shown.split()[:3] == ["cartpole_dqn", "dqn", "CartPole-v1"]
    assert plain.score in shown and plain.cost in shown and plain.mode == "serial" and plain.seeds >= 5
    assert [line.split()[0] for line in lines[1:-2]] == sorted(shipped_configs())
    assert lines[-1].startswith(f"{len(shipped_configs())} configs. ")


def test_words_keep_the_lines_that_have_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("list", "configs", "pendulum", "sac") == 0

    _, *rows, _, count = capsys.readouterr().out.splitlines()
    assert rows and all("pendulum" in row and "sac" in row for row in rows) and count.startswith(f"{len(rows)} configs")


def test_policies_and_envs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("list", "policies") == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert (
        set(POLICY_REGISTRY.names()) >= {name for name in shown if name != "policy" and not name.isdigit()}
        and "serial_onpolicy" in shown["ppo"]
    )
    assert "HybridSpace" in shown["pdqn"] and "cartpole_iqn" in shown["iqn"]

    assert status_of("list", "envs") == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "ppo, sac, td3" in shown["Ant-v5"] and "cartpole" in shown["CartPole-v1"]
    assert {each.env for each in read_shipped()} <= set(shown)


def test_a_policy_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("info", "td3") == 0

    shown = capsys.readouterr().out
    assert shown.startswith("td3: Deterministic actor and two critics") and "Fujimoto et al. 2018" in shown
    assert "actions      Box" in shown and "modes        serial, parallel, dist, ray, seed, ranks" in shown
    assert "pendulum_td3 " in shown and read_recorded()["pendulum_td3"][0].score in shown
    assert "policy.learn.actor_update_freq = 2\n      Updates of the critics per update of the actor." in shown
    assert "policy.learn.optimizer.eps" not in shown
    assert status_of("info", "td3", "--keys") == 0
    assert "policy.learn.optimizer.eps" in capsys.readouterr().out


def test_a_policy_of_ones_own_is_described(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_tmp / "own_policy_a.py").write_text(
        "from ding_like.policy import DQNPolicy\n\n\nclass Mine(DQNPolicy):\n"
        '    """Values of my own (Someone 2024)."""\n\n    config = dict(mine=3)  # how mine it is\n'
    )
    with own_modules():
        assert status_of("info", "own_policy_a:Mine") == 0

    shown = capsys.readouterr().out
    assert shown.startswith("own_policy_a:Mine: Values of my own") and "paper        Someone 2024" in shown
    assert "policy.mine = 3" in shown and "policy.type" not in shown and "configs" not in shown


def test_runs_in_other_modes_and_with_other_values_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("info", "dqn") == 0

    _, _, other = capsys.readouterr().out.partition("recorded in other modes, or with other values")
    assert "-m parallel" in other and "policy.other.replay_buffer.k=0" in other


@pytest.mark.parametrize(
    ("name", "papers"),
    [
        ("iqn", ["Dabney et al. 2018b"]),
        ("fqf", ["Yang et al. 2019"]),
        ("ddpg", ["Lillicrap et al. 2016"]),
        ("td3", ["Fujimoto et al. 2018"]),
        ("c51", ["Bellemare et al. 2017"]),
        ("pg", ["Williams 1992; Sutton and Barto 2018, section 13.4"]),
    ],
)
def test_the_paper_is_that_of_the_policy(name: str, papers: list[str]) -> None:
    assert papers_of(get_policy_cls({"type": name})) == papers


@pytest.mark.parametrize("name", ["cartpole_dqn", "cartpole_ppo"])
def test_the_modes_of_a_policy_are_those_that_plan_it(name: str) -> None:
    path, arguments = str(shipped_configs()[name]), load("training:RunArguments")

    def plans(mode: str) -> bool:
        try:
            load(MODES[mode].home).of(path, arguments(mode, 0), exp_name="exp")
        except ConfigError:
            return False
        return True

    modes = ("serial", "serial_onpolicy", "serial_offline", "parallel", "ray", "seed", "ranks")
    named = modes_of(get_policy_cls({"type": name.removeprefix("cartpole_")}))
    assert [mode for mode in modes if plans(mode)] == [mode for mode in modes if mode in named]


def test_keys_versions_and_results_of_two_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    versions = {"torch": "2.13.0", "numpy": "2.4.6"}
    one = write_run(Path("one"), training_and_evaluation(), result={**RESULT, "versions": versions})
    write_run(
        Path("two"), training_and_evaluation(), seed=1, stop_value=450.0, policy="ppo",
        result={**RESULT, "eval_value": 500.0, "versions": {**versions, "torch": "2.14.0"}},
    )  # fmt: skip

    assert status_of("diff", "one", "two") == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        ["keys", "one", "two"],
        ["seed", "0", "1"],
        ["env.stop_value", "475.0", "450.0"],
        ["policy.type", '"dqn"', '"ppo"'],
        ["versions", "one", "two"],
        ["torch", "2.13.0", "2.14.0"],
        ["results", "one", "two"],
        ["eval_value", "480", "500"],
    ]
    assert status_of("diff", "one", "two", "--json") == 0
    assert json.loads(capsys.readouterr().out)["versions"] == [{"key": "torch", "first": "2.13.0", "second": "2.14.0"}]
    assert diff(one, one) == {"keys": [], "versions": [], "results": []}


def test_a_config_is_compared_as_it_is_compiled() -> None:
    path = shipped_configs()["cartpole_dqn"]
    other = Path("my_config.py")
    other.write_text(path.read_text() + "\nmain_config['policy']['nstep'] = 5\nmain_config['exp_name'] = 'x'\n")

    assert [tuple(row) for row in diff(path, other)["keys"]] == [("policy.nstep", "3", "5")]


def test_of_several_seeds_the_first_is_taken() -> None:
    folder = write_seeds(Path("several"), {3: 480.0, 4: 490.0})

    assert diff(folder, folder / "seed3") == {"keys": [], "versions": [], "results": []}
    assert [row.key for row in diff(folder, folder / "seed4")["keys"]] == ["seed"]


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("list", "polices"), "Did you mean 'policies'?"),
        (("list", "configs", "cartpoel_dqn"), "Did you mean 'cartpole_dqn'?"),
        (("info", "dqnn"), "did you mean 'dqn'"),
        (("info", "no_module:X"), "no_module"),
        (("diff", "nowhere", "exp"), "'nowhere' is not an experiment folder"),
        (("diff", "nowhere.py", "exp"), "nowhere.py"),
    ],
)
def test_an_unknown_name_is_one_error_with_near_names(
    arguments: tuple[str, ...], fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*arguments) == 1
    error = capsys.readouterr().err
    assert fix in error and error.count("Error:") == 1
