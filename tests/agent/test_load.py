"""An agent that is loaded acts as the run's own evaluator does, without the env and its config."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ding_like
from ding_like.agent.description import AGENT_FILE, describe_agent, read_description, write_description
from ding_like.agent.wrappers import FedEnv, describe_wrappers
from ding_like.config import read_saved_config
from ding_like.config.tree import literal
from ding_like.data.rows import adapt_collect_mode
from ding_like.data.spaces import space_from_json, space_to_json
from ding_like.envs.wrappers.pictures import NoopReset
from ding_like.errors import CheckpointError, ConfigError, DingError, RegistryError, SchemaError
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY
from ding_like.utils.seeding import make_rng
from tests.agent.played import ALL, EPISODE, SMALL, STACK, evaluate, same_action, saved_run, stacked, statistics_of
from tests.contracts.policy_cases import ACTING
from tests.serve.runs import Run, run_of
from tests.serve.toy_envs import ACTIONS_OF, OBSERVATIONS, ToyEnv


def some(names: Iterable[str], *quick: str) -> list[Any]:
    """Return names as parameters: those of the suite, and the others marked `slow`."""
    assert set(quick) <= set(names)
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.fixture(autouse=True)
def _no_moves_left() -> Iterator[None]:
    yield
    ToyEnv.played.clear()


@pytest.mark.parametrize(
    "kind",
    some(
        ALL, "vectors", "actions from 3", "dicts in dicts", "several actions", "box", "statistics of both",
        "chosen and scaled", "stacked and normalised", "recurrent ppo", "hybrid", "masked", "team",
    ),
)  # fmt: skip
def test_an_agent_acts_as_the_evaluator_of_its_run_does(kind: str, tmp_path: Path) -> None:
    run, path = saved_run(tmp_path / "exp", kind)
    moves = evaluate(run, path)
    (run.folder / "total_config.py").unlink()

    agent = ding_like.load(run.folder)
    actions = []
    for step, (obs, _) in enumerate(moves):
        if step % EPISODE == 0:
            agent.reset()
        actions.append(agent.act(obs))

    assert len(moves) >= 12 and agent.client_wrappers == ()
    assert all(same_action(mine, action) for mine, (_, action) in zip(actions, moves, strict=True))
    assert all(agent.action_space.contains(_as_taken(action, agent.action_space)) for action in actions)


def _as_taken(action: Any, space: Any) -> Any:
    return np.asarray(action, space.dtype) if isinstance(space, gymnasium.spaces.Box) else action


@pytest.mark.parametrize(
    "kind",
    some(
        ["vectors", "stacked box", "stacked and normalised", "recurrent ppo", "hybrid", "masked", "bits"],
        "stacked and normalised", "recurrent ppo", "hybrid", "masked",
    ),
)  # fmt: skip
def test_rows_of_a_batch_are_episodes_of_their_own(kind: str, tmp_path: Path) -> None:
    run, path = saved_run(tmp_path / "exp", kind)
    moves = evaluate(run, path)
    episodes = [moves[start : start + EPISODE] for start in range(0, len(moves), EPISODE)]
    agent = ding_like.load(run.folder)

    # The second row begins its episode anew in the middle.
    order = [[0, 1, 2, 3, 4], [0, 1, 0, 1, 2], [0, 1, 2, 3, 4]]
    for step in range(EPISODE):
        pairs = [episode[order[row][step]] for row, episode in enumerate(episodes)]
        first = np.array([step == 0, order[1][step] == 0, step == 0])
        actions = agent.act(stacked([obs for obs, _ in pairs]), is_first=first)

        for mine, (_, action) in zip(actions, pairs, strict=True):
            if isinstance(mine, tuple):
                assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(mine, action, strict=True))
            else:
                np.testing.assert_allclose(mine, action, rtol=1e-5, atol=1e-6)


def test_sampled_actions_are_those_of_the_collector(tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", "ppo box")
    agent = ding_like.load(run.folder, seed=5)
    obs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)

    sampled, greedy = agent.act(obs, deterministic=False), agent.act(obs)

    policy = run.policy(7)
    expected = adapt_collect_mode(policy.collect_mode).actor.act(
        obs, lanes=np.arange(64), is_first=np.ones(64, bool), rng=make_rng(5, "agent")
    )["action"]
    np.testing.assert_array_equal(sampled, expected)
    assert not np.array_equal(sampled, greedy)
    np.testing.assert_array_equal(agent.act(obs), greedy)


def test_exploration_is_that_of_the_step_at_which_the_checkpoint_was_saved(tmp_path: Path) -> None:
    eps = dict(type="linear", start=1.0, end=0.0, decay=100)
    run = Run(tmp_path / "exp", "dqn", {**SMALL, "other": dict(eps=eps)})
    run.save(7, name="early.pth.tar")  # env step 56
    run.save(20, name="late.pth.tar")  # env step 160: no exploration is left
    write_description(run.cfg)
    obs = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)

    early, late = (ding_like.load(run.folder / "ckpt" / name) for name in ("early.pth.tar", "late.pth.tar"))

    assert np.array_equal(late.act(obs), late.act(obs, deterministic=False))
    differ = (early.act(obs) != early.act(obs, deterministic=False)).mean()
    assert 0.2 < differ < 0.45  # eps is 0.44, and a quarter of what is random is the best action


def test_a_folder_that_was_moved_loads_where_neither_env_nor_config_is(tmp_path: Path) -> None:
    run = ding_like.train(
        "ppo", "CartPole-v1", env_step=600, env=dict(wrappers=["obs_norm"]), exp_name=str(tmp_path / "here" / "exp")
    )
    obs = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    expected = run.agent.act(obs).tolist()
    there = tmp_path / "there"
    shutil.move(tmp_path / "here", there)
    (there / "exp/total_config.py").unlink()

    answer = _in_a_process_without_envs(there, "exp", obs)

    assert answer == expected


_WITHOUT_ENVS = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dizoo", "tests") or name.startswith("gymnasium.envs.classic_control"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocked())
import gymnasium
gymnasium.registry.clear()
import ding_like
agent = ding_like.load(sys.argv[1], import_names=sys.argv[3:])
print(json.dumps(agent.act(json.loads(sys.argv[2])).tolist()))
"""


def _in_a_process_without_envs(folder: Path, name: str, obs: Any, *import_names: str) -> Any:
    command = [sys.executable, "-c", _WITHOUT_ENVS, name, json.dumps(obs.tolist()), *import_names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_folder_holds_no_absolute_path(tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", "stacked and normalised")

    assert str(tmp_path) not in (run.folder / AGENT_FILE).read_text()


def test_a_folder_of_an_older_version_is_read_by_making_its_env(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, path = saved_run(tmp_path / "exp", "stacked and normalised")
    moves = evaluate(run, path)
    (run.folder / AGENT_FILE).unlink()

    with caplog.at_level("INFO"):
        agent = ding_like.load(run.folder)

    assert "has no agent.json" in caplog.text
    assert [agent.act(obs) for obs, _ in moves[:EPISODE]] == [action for _, action in moves[:EPISODE]]


def test_which_checkpoint_acts_can_be_chosen(tmp_path: Path) -> None:
    run, best = saved_run(tmp_path / "exp", "vectors")
    last = run.save(12)

    versions = [ding_like.load(run.folder, which=which).version for which in ("best", "last", "iteration_12.pth.tar")]

    assert [version.path for version in versions] == [best, last, last]
    assert [version.train_iter for version in versions] == [7, 12, 12] and versions[1].env_step == 96
    assert ding_like.load(last).version.path == last


def test_what_cannot_be_loaded_is_one_clear_error(tmp_path: Path) -> None:
    run, best = saved_run(tmp_path / "exp", "vectors")
    empty = tmp_path / "empty"
    empty.mkdir()
    several = tmp_path / "several"
    shutil.copytree(run.folder, several / "seed0")
    shutil.copytree(run.folder, several / "seed1")
    alone = shutil.copy(best, tmp_path / "alone.pth.tar")

    with pytest.raises(ConfigError, match=r"no folder '.*nowhere'"):
        ding_like.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"not an experiment folder"):
        ding_like.load(empty)
    with pytest.raises(ConfigError, match=r"several runs: give one of them, .*seed0 or .*seed1"):
        ding_like.load(several)
    with pytest.raises(ConfigError, match=r"lies in no run's folder.*which="):
        ding_like.load(alone)
    with pytest.raises(CheckpointError, match=r"no checkpoint 'newest'; which is 'best', 'last' or a file"):
        ding_like.load(run.folder, which="newest")
    best.unlink()
    with pytest.raises(CheckpointError, match=r"has not been evaluated yet. which='last'"):
        ding_like.load(run.folder)
    with pytest.raises(CheckpointError, match="this run has saved none yet"):
        ding_like.load(run.folder, which="last")
    (run.folder / AGENT_FILE).write_text("{x")
    with pytest.raises(CheckpointError, match=r"Copy it again; or delete it, and total_config.py is read"):
        ding_like.load(run.folder)
    (run.folder / AGENT_FILE).write_text(json.dumps({"format": 99}))
    with pytest.raises(CheckpointError, match=r"has format 99 \(written by .*\), this version reads 2: load it with"):
        ding_like.load(run.folder)


def test_what_is_no_observation_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", "recurrent")
    agent = ding_like.load(run.folder)

    with pytest.raises(SchemaError, match=r"shape \(4,\), expected shape \(3,\) for one observation or \(R, 3\)"):
        agent.act(np.zeros(4, np.float32))
    with pytest.raises(SchemaError, match="a NaN or an infinity"):
        agent.act(np.full(3, np.nan, np.float32))
    agent.act(np.zeros((2, 3), np.float32))
    with pytest.raises(SchemaError, match=r"given 3 observations after 2.*reset\(\)"):
        agent.act(np.zeros((3, 3), np.float32))
    with pytest.raises(SchemaError, match="is_first is"):
        agent.act(np.zeros((2, 3), np.float32), is_first=[True])
    agent.reset()
    assert agent.act(np.zeros((3, 3), np.float32)).shape == (3,)


@pytest.mark.parametrize(
    ("section", "error"),
    [
        (
            {"type": "my_dqn", "import_names": ["my_policies.dqn"]},
            "not imported here: my_policies.dqn.*--import",
        ),
        ({"type": "antigravity:Policy"}, "not imported here: antigravity"),
        ({"model": {"type": "evil.py:Model"}}, "not imported here: evil.py"),
        ({"model": {"activation": "import:antigravity.Layer()"}}, "not imported here: antigravity"),
        ({"model": {"type": "subprocess:Popen", "args": ["touch", "ran"]}}, "no class of torch.nn.Module"),
        ({"type": "ding_like.utils.registries:run_file"}, "no class of Policy"),
        ({"type": "evil:ns/Walk-v0"}, "not imported here: evil"),
        ({"type": "./a$b/evil.py:X"}, r"not imported here: ./a\$b/evil.py"),
        ({"import_names": {"evil": 0}}, "not imported here: evil"),
        ({"model": {"import_names": [["evil"]]}}, "not imported here"),
        ({"model": {"activation": "import: evil.x"}}, "not imported here"),
        ({"model": {"activation": "import:(evil).x"}}, "not imported here"),
    ],
)
def test_a_folder_that_names_foreign_code_runs_none(tmp_path: Path, in_tmp: Path, section: Any, error: str) -> None:
    run, _ = saved_run(tmp_path / "exp", "vectors")
    found = json.loads((run.folder / AGENT_FILE).read_text())
    found["policy"] |= section
    (run.folder / AGENT_FILE).write_text(json.dumps(found))
    (in_tmp / "evil.py").write_text("open('ran', 'w')")

    with pytest.raises(ConfigError, match=error):
        ding_like.load(run.folder)

    assert not (in_tmp / "ran").exists() and "antigravity" not in sys.modules
    with pytest.raises(ConfigError, match="my_policies cannot be imported"):
        ding_like.load(run.folder, import_names=["my_policies"])


@pytest.mark.parametrize("name", ["evil:", "evil: x", "evil:x:y", "import:torch.x"])
def test_what_is_no_import_path_imports_nothing(
    tmp_path: Path, in_tmp: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(in_tmp)
    run, _ = saved_run(tmp_path / "exp", "vectors")
    found = json.loads((run.folder / AGENT_FILE).read_text())
    found["policy"]["type"] = name
    (run.folder / AGENT_FILE).write_text(json.dumps(found))
    for module in ("evil", "import"):
        (in_tmp / f"{module}.py").write_text("open('ran', 'w')")

    with pytest.raises(RegistryError, match=rf"'{name}' is no import path; expected 'module:Class'"):
        ding_like.load(run.folder)

    assert not (in_tmp / "ran").exists()


def _env(**given: Any) -> Any:
    return lambda main, create: (create["env"].update(type="gymnasium"), main["env"].update(given, type="gymnasium"))


@pytest.mark.parametrize(
    "change",
    [
        _env(env_id="evil:Walk-v0"),
        _env(env_id="evil:ns/Walk-v0"),
        _env(env_id="evil:2048-v0"),
        _env(wrappers={"evil:X"}),
        lambda main, create: main.update(trackers={"evil:X": {}}),
        lambda main, create: main.update(trackers={"mine": {"type": "evil:X"}}),
        lambda main, create: main.update(reward_model={"type": "evil:X"}),
        lambda main, create: create["policy"].update(import_names=["evil"]),
    ],
)
def test_the_saved_config_of_a_folder_runs_no_foreign_code(
    tmp_path: Path, in_tmp: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    monkeypatch.syspath_prepend(in_tmp)
    run, _ = saved_run(tmp_path / "exp", "vectors")
    main, create = read_saved_config(run.folder / "total_config.py")
    change(main, create)
    (run.folder / "total_config.py").write_text(f"main_config = {literal(main)}\ncreate_config = {literal(create)}\n")
    (in_tmp / "evil.py").write_text("open('ran', 'w')")

    (run.folder / AGENT_FILE).unlink()
    with contextlib.suppress(DingError):
        ding_like.load(run.folder)

    assert not (in_tmp / "ran").exists()


_OWN_WRAPPER = """
import gymnasium
from ding_like.utils.registries import ENV_WRAPPER_REGISTRY

@ENV_WRAPPER_REGISTRY.register("halved")
class Halved(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return observation / 2
"""


def test_a_module_that_registers_the_runs_wrappers_is_imported(tmp_path: Path) -> None:
    (tmp_path / "my_halves.py").write_text(_OWN_WRAPPER)
    own = str(tmp_path / "my_halves.py")
    env = dict(wrappers=["halved"], import_names=[own])
    run = ding_like.train("dqn", "CartPole-v1", env_step=100, env=env, exp_name=str(tmp_path / "exp"))
    obs = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)

    assert _in_a_process_without_envs(tmp_path, "exp", obs, own) == run.agent.act(obs).tolist()


def test_a_run_that_was_given_its_model_asks_for_it(tmp_path: Path) -> None:
    run, _ = saved_run(tmp_path / "exp", "vectors")
    write_description(run.cfg, has_own_model=True)

    with pytest.raises(ConfigError, match="model=MODEL"):
        ding_like.load(run.folder)

    model = run.policy(0).get_attribute("model")
    obs = np.ones(3, np.float32)
    with_model = ding_like.load(run.folder, model=model).act(obs)
    write_description(run.cfg)
    assert with_model == ding_like.load(run.folder).act(obs)


class Doubled(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that observes twice the number."""

    def observation(self, observation: Any) -> Any:
        return observation * 2


class Timed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that observes a number inside the env."""

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action)
        return obs + self.unwrapped.time, *rest  # type: ignore[attr-defined]


class OfReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that observes the last reward."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return obs + np.float32(reward), reward, *rest


@pytest.mark.parametrize("cls, needs", [(Doubled, "steps"), (Timed, "env"), (OfReward, "env"), (NoopReset, "env")])
def test_a_wrapper_is_applied_without_its_env_only_where_that_works(cls: Any, needs: str, tmp_path: Path) -> None:
    name = f"test_load_{cls.__name__}"
    if name not in ENV_WRAPPER_REGISTRY:
        ENV_WRAPPER_REGISTRY.register(name)(cls)
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=[name, STACK, "FlattenObservation"])
    path = run.save(7, name="ckpt_best.pth.tar")
    write_description(run.cfg)

    agent = ding_like.load(run.folder)

    assert [layer.needs for layer in agent.description.layers] == [needs, "steps", "nothing"]
    assert agent.client_wrappers == ((name,) if needs == "env" else ())
    if cls is Doubled:
        moves = evaluate(run, path)[:EPISODE]
        assert [agent.act(obs) for obs, _ in moves] == [action for _, action in moves]


def test_a_wrapper_around_observations_that_are_no_arrays_needs_the_env() -> None:
    space = gymnasium.spaces.Dict({"mission": gymnasium.spaces.Text(8), "size": gymnasium.spaces.Box(0, 1, (2,))})
    env = FedEnv(space, gymnasium.spaces.Discrete(2))

    _, (layer,) = describe_wrappers(env, [dict(type="FilterObservation", filter_keys=["size"])])

    assert layer.needs == "env" and layer.why is not None and "which are not sent" in layer.why


def test_wrappers_that_need_the_env_are_put_around_it_with_their_statistics(tmp_path: Path) -> None:
    if "test_load_OfReward" not in ENV_WRAPPER_REGISTRY:
        ENV_WRAPPER_REGISTRY.register("test_load_OfReward")(OfReward)
    run = Run(tmp_path / "exp", "dqn", SMALL, wrappers=["obs_norm", "test_load_OfReward", "obs_norm"])
    path = run.save(7, name="ckpt_best.pth.tar", **statistics_of(run))
    write_description(run.cfg)
    moves = evaluate(run, path)[:EPISODE]
    agent = ding_like.load(run.folder)

    env = agent.wrap(_Replayed(moves))
    obs, _ = env.reset()
    actions = []
    for _ in moves:
        actions.append(agent.act(obs))
        obs, *_ = env.step(actions[-1])

    assert agent.client_wrappers == ("obs_norm", "test_load_OfReward")
    assert actions == [action for _, action in moves]


class _Replayed(FedEnv):
    """Env that observes what was observed, with rewards of 1."""

    def __init__(self, moves: Any) -> None:
        super().__init__(OBSERVATIONS["vector"], ACTIONS_OF["discrete"])
        self._obs = [obs for obs, _ in moves]

    def reset(self, **_: Any) -> Any:
        return self._obs[0], {}

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        return self._obs[min(self.num_steps, len(self._obs) - 1)], 1.0, False, False, {}


@pytest.mark.parametrize("name", some(ACTING, "dqn", "rainbow", "ppo", "ppo box", "sac", "r2d2", "ppo_recurrent"))
def test_every_policy_can_be_loaded(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "exp", ACTING[name])
    run.save(3, name="ckpt_best.pth.tar")
    write_description(run.cfg)
    found = read_description(run.folder)

    agent = ding_like.load(run.folder)
    obs = found.observation_space.sample()

    assert found == describe_agent(run.cfg)
    assert agent.action_space.contains(_as_taken(agent.act(obs), agent.action_space))
    agent.reset()
    assert agent.action_space.contains(_as_taken(agent.act(obs, deterministic=False), agent.action_space))


SPACES = {
    **OBSERVATIONS,
    **{f"actions {name}": space for name, space in ACTIONS_OF.items()},
    "unbounded": gymnasium.spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "bits in rows": gymnasium.spaces.MultiBinary([2, 3]),
    "bytes": gymnasium.spaces.Discrete(3, dtype=np.int32),
}


def test_every_space_is_the_same_after_json() -> None:
    pairs = {
        name: (space, space_from_json(json.loads(json.dumps(space_to_json(space))))) for name, space in SPACES.items()
    }

    assert not {
        name: str(again) for name, (space, again) in pairs.items() if again != space or repr(again) != repr(space)
    }


def test_of_another_kind_of_space_the_name_is_kept() -> None:
    space = gymnasium.spaces.Dict({"mission": gymnasium.spaces.Text(8), "size": gymnasium.spaces.Discrete(3)})

    again = space_from_json(space_to_json(space))

    assert isinstance(again, gymnasium.spaces.Dict) and "Text" in repr(again["mission"])
