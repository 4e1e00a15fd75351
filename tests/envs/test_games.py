"""Games: PettingZoo's, as one player sees them, and in processes of their own, where those that break are made anew."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ding_like.envs import EnvFactory, create_env_manager, get_vec_env_setting
from ding_like.envs.game import PairGame, PettingZooGame, SoloEnv, as_game
from ding_like.envs.manager.game import GameEnvManager, VersusManager
from ding_like.envs.team import PettingZooTeam
from ding_like.errors import ConfigError, EnvError
from ding_like.policy.di_engine_view import RandomActor
from ding_like.types import Array
from ding_like.worker.collector.battle import BattleLoop
from ding_like.worker.collector.loop import RolloutLoop
from dizoo.league_demo.matrix_game import MatrixGame
from tests.envs.faulty_env import FaultyGame, HangingGame, WrongGame
from tests.worker.collector.scripted_game import ScriptedActor, ScriptedGame, action_of

LENGTHS = (3, 5, 2, 4)


class ScriptedOpponent(ScriptedActor):
    """Scripted actor that gets lanes of all players in place of those of games."""

    def act(self, obs: Any, *, lanes: Any, is_first: Any, rng: Any, **setting: Any) -> dict[str, Any]:
        return super().act(obs, lanes=lanes // 2, is_first=is_first, rng=rng, **setting)


def make(games: int = 3, **scripted: Any) -> VersusManager:
    manager = GameEnvManager(
        [lambda game=game: ScriptedGame(game, lengths=LENGTHS, **scripted) for game in range(games)]
    )
    seen = VersusManager(manager, rng=np.random.default_rng(0), opponent=ScriptedOpponent())
    seen.launch()
    seen.reset()
    return seen


def play(seen: VersusManager, steps: int, *, idle: Array | None = None) -> tuple[RolloutLoop, dict[str, Array]]:
    loop = RolloutLoop(seen, ScriptedActor(), rng=np.random.default_rng(0))
    for _ in range(steps):
        loop.step({}, idle=idle)
    return loop, loop.rollout.columns()


@pytest.mark.parametrize("in_turn", [False, True])
def test_rows_are_of_one_player_a_game_and_sides_change(in_turn: bool) -> None:
    seen = make(in_turn=in_turn)
    _, rows = play(seen, 120)
    obs, following = rows["obs"].astype(int), rows["next_obs"].astype(int)

    assert (obs[:, 0] == rows["lane"]).all() and (following[:, :2] == obs[:, :2]).all()
    assert (obs[:, 2] == following[:, 2]).all(), "an observation of another episode"
    # Episode k of game e was begun once by launch and once by reset: its players alternate from there on.
    assert (obs[:, 1] == (obs[:, 0] + obs[:, 2] - 1) % 2).all()
    assert set(obs[:, 1]) == {0, 1}
    for row in range(len(obs)):
        moves = range(obs[row, 3] + 1, following[row, 3] + 1)
        missed = range(1, obs[row, 3] + 1) if in_turn and obs[row, 3] == 1 else ()  # before its first move
        expected = sum(100 * obs[row, 2] + 10 * move + obs[row, 1] for move in (*missed, *moves))
        assert rows["reward"][row] == expected


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_game_that_breaks_is_dropped_whole_and_the_next_goes_on(in_turn: bool) -> None:
    faults = {(1, 2, 2): "raise", (0, 3, 3): "nan", (2, 2, 1): "reward"}  # player 1 sees the NaN
    counters = [[-1] for _ in range(3)]  # outlive the games, which are made anew
    games = [
        lambda game=game: ScriptedGame(game, lengths=(4, 5, 6), in_turn=in_turn, faults=faults, episodes=counters[game])
        for game in range(3)
    ]
    seen = VersusManager(GameEnvManager(games), rng=np.random.default_rng(0), opponent=ScriptedOpponent())
    seen.launch()
    seen.reset()
    loop, rows = play(seen, 100)
    episodes = {(int(game), int(episode)) for game, _, episode, _ in rows["obs"]}

    assert loop.dropped_episodes == 3
    assert episodes.isdisjoint({(game, episode) for game, episode, _ in faults})
    for game, counter in enumerate(counters):
        broken = {episode for other, episode, _ in faults if other == game}
        assert episodes >= {(game, episode) for episode in range(1, counter[0]) if episode not in broken}
        own = rows["obs"][rows["lane"] == game]
        assert (own[:, 0] == game).all()


def test_a_game_that_waits_for_us_stands_still_where_we_are_idle() -> None:
    seen = make()
    _, rows = play(seen, 20, idle=np.array([True, False, False]))

    assert set(rows["lane"]) == {1, 2}


def test_results_are_those_of_games_against_one_opponent() -> None:
    seen = make(games=2)
    loop = RolloutLoop(seen, ScriptedActor(), rng=np.random.default_rng(0))
    ended = sum(len(loop.step({})) for _ in range(2))
    assert ended == 1  # of game 1, whose next one has not begun; game 0 is open
    seen.use_opponent(ScriptedOpponent())
    while ended < 10:
        ended += len(loop.step({}))

    assert seen.take_results() == [1] * (ended - 1) and seen.take_results() == []


def test_what_is_no_game_or_has_no_opponent_is_refused() -> None:
    with pytest.raises(EnvError, match="several players"):
        VersusManager(type("Single", (), {"num_players": 1})(), rng=np.random.default_rng(0))  # type: ignore[arg-type]
    manager = GameEnvManager([lambda: ScriptedGame(0)])
    seen = VersusManager(manager, rng=np.random.default_rng(0))
    seen.launch()
    with pytest.raises(EnvError, match="no opponent"):
        seen.step(np.array([0]), np.array([0]))


def test_a_saved_state_goes_on_with_the_same_sides_and_moves() -> None:
    seen = make()
    play(seen, 7)
    state = seen.state_dict()
    other = make()
    other.load_state_dict(state)

    assert other._side.tolist() == seen._side.tolist() and other.lanes_lost == [0, 1, 2]
    assert other._rng.random() == seen._rng.random()


# --- one game as an env


class Opponent(ScriptedActor):
    """Scripted actor that gets numbers of players in place of those of games."""

    def act(self, obs: Any, *, lanes: Any, is_first: Any, rng: Any, **setting: Any) -> dict[str, Any]:
        assert (obs[:, 1] == lanes).all(), "an observation of another player"
        return super().act(obs, lanes=obs[:, 0].astype(int), is_first=is_first | (obs[:, 3] == 1), rng=rng)


@pytest.mark.parametrize("in_turn", [False, True])
def test_rewards_are_summed_over_the_others_moves_and_players_change(in_turn: bool) -> None:
    env = SoloEnv(ScriptedGame(0, in_turn=in_turn, lengths=(4, 5)), Opponent())
    for episode in range(4):
        obs, _ = env.reset()
        player = int(obs[1])
        assert (player, int(obs[2])) == (episode % 2, episode)
        done = False
        while not done:
            move = int(obs[3])
            obs, reward, done, cut, _ = env.step(action_of(0, player, episode, move))
            assert int(obs[1]) == player and not cut
            assert reward == sum(100 * episode + 10 * each + player for each in range(move + 1, int(obs[3]) + 1))


def test_a_board_game_is_played_to_its_end_and_rendered() -> None:
    game = PettingZooGame({"env_id": "classic/tictactoe-v3", "flatten": True, "render_mode": "rgb_array"})
    env, rng = SoloEnv(game, RandomActor(game.action_space), render_mode="rgb_array"), np.random.default_rng(0)
    for _ in range(5):
        obs, _ = env.reset(seed=1)
        done, moves = False, 0
        while not done:
            assert env.render().ndim == 3
            obs, reward, done, _, _ = env.step(int(rng.choice(np.flatnonzero(obs["action_mask"]))))
            moves += 1
        assert 2 <= moves <= 5 and reward in (-1.0, 0.0, 1.0)
    env.close()


def test_a_game_without_pictures_says_so() -> None:
    game = MatrixGame()
    with pytest.raises(EnvError, match="MatrixGame cannot render"):
        SoloEnv(game, RandomActor(game.action_space)).render()


# (fault, whether players move in turn); the others with the tests that are marked slow.
FAULTS = [("hang", True), ("nan", False)]
SLOW_FAULTS = [("hang", False), ("die", False), ("die", True), ("raise", False), ("raise", True), ("nan", True)]


def make_games(envs: Any, **cfg: Any) -> GameEnvManager:
    return GameEnvManager(envs, {"subprocess": True, "step_timeout_s": 2.0, **cfg})


def play_both(manager: GameEnvManager, steps: int) -> BattleLoop:
    manager.launch()
    loop = BattleLoop(manager, [ScriptedActor(), ScriptedActor()], rng=np.random.default_rng(0), record=[True, True])
    for _ in range(steps):
        loop.step([{}, {}])
    return loop


@pytest.mark.parametrize("in_turn", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_process_plays_the_same_game(in_turn: bool) -> None:
    envs = [functools.partial(ScriptedGame, game, in_turn=in_turn) for game in range(2)]
    logs = []
    for subprocess in (False, True):
        manager = GameEnvManager(envs, {"subprocess": subprocess})
        loop = play_both(manager, 30)
        logs.append([own.rollout.columns() for own in loop.loops])
        manager.close()

    for here, there in zip(*logs, strict=True):
        assert here.keys() == there.keys() and len(here["reward"]) > 20
        for name in here:
            assert (here[name] == there[name]).all(), name


@pytest.mark.parametrize(
    ("fault", "in_turn"), [*FAULTS, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_FAULTS)]
)
def test_both_sides_of_a_broken_game_are_dropped_and_nothing_else(fault: str, in_turn: bool, tmp_path: Path) -> None:
    """The loops' actors check that every observation is of their game, and games that every action is for them."""
    marker = tmp_path / "done"
    envs: list[Any] = [functools.partial(ScriptedGame, 0, in_turn=in_turn, lengths=(4, 5, 6))]
    envs.append(functools.partial(FaultyGame, 1, in_turn=in_turn, fault=fault, marker=str(marker)))
    manager = make_games(envs)
    loop = play_both(manager, 60)
    manager.close()

    assert marker.exists()
    assert [own.dropped_episodes for own in loop.loops] == [1, 1]
    for player, own in enumerate(loop.loops):
        rows = own.rollout.columns()
        assert (rows["obs"][:, 0] == rows["lane"]).all() and (rows["obs"][:, 1] == player).all()
        for lane in (0, 1):
            of_lane = rows["lane"] == lane
            episodes = np.unique(rows["episode_id"][of_lane])
            for episode in episodes[:-1]:  # the last one is open
                mine = of_lane & (rows["episode_id"] == episode)
                assert rows["terminated"][mine].tolist() == [False] * (mine.sum() - 1) + [True]
            assert len(episodes) > 5


def test_a_game_that_cannot_be_made_is_an_error_with_its_cause_and_leaves_no_process() -> None:
    with pytest.raises(ValueError, match="no such game"):
        make_games([functools.partial(ScriptedGame, 0), WrongGame])
    with pytest.raises(EnvError, match="cannot be pickled"):
        make_games([functools.partial(ScriptedGame, threading.Lock())])


@pytest.mark.slow
def test_a_game_that_hangs_at_every_move_ends_the_run() -> None:
    manager = make_games([HangingGame], step_timeout_s=0.3)
    with pytest.raises(EnvError, match="without finishing an episode"):
        play_both(manager, 20)
    manager.close()


TICTACTOE = "classic/tictactoe-v3"
RPS = "classic/rps-v2"
SPREAD = {"env_id": "mpe2.simple_spread_v3", "kwargs": {"N": 3, "max_cycles": 5, "continuous_actions": False}}


def play_turns(game: PettingZooGame, actions: list[int]) -> list[Any]:
    """Play a turn-based game; return the steps."""
    _, (player,) = game.reset(seed=0)
    steps = []
    for action in actions:
        steps.append(game.step({player: action}))
        if len(steps[-1].to_move):
            (player,) = steps[-1].to_move
    return steps


def test_a_won_game_of_tic_tac_toe() -> None:
    game = PettingZooGame({"env_id": TICTACTOE})

    steps = play_turns(game, [0, 3, 1, 4, 2])

    assert [list(step.to_move) for step in steps] == [[1], [0], [1], [0], []]
    assert [list(step.reward) for step in steps] == [[0, 0]] * 4 + [[1, -1]]
    assert list(steps[-1].terminated) == [True, True] and list(steps[-1].truncated) == [False, False]
    assert not any(any(step.terminated) for step in steps[:-1])
    mask = steps[1].obs[0]["action_mask"]
    assert mask.tolist() == [0, 1, 1, 0, 1, 1, 1, 1, 1]
    game.close()


def test_each_player_sees_the_board_from_its_own_side() -> None:
    game = PettingZooGame({"env_id": TICTACTOE, "flatten": True})

    (step,) = play_turns(game, [4])

    own = step.obs[1]["observation"].reshape(3, 3, 2)
    assert own.dtype == np.float32 and own[1, 1].tolist() == [0, 1], "the stone in the middle is the opponent's"
    assert game.observation_space["observation"].shape == (18,)
    game.close()


def test_a_move_of_who_is_not_to_move_is_refused() -> None:
    game = PettingZooGame({"env_id": TICTACTOE})
    game.reset(seed=0)

    with pytest.raises(EnvError, match=r"moves of players \[1\] were given, but player 0 is to move"):
        game.step({1: 0})
    game.close()


def test_all_moves_at_once() -> None:
    game = PettingZooGame({"env_id": RPS, "api": "parallel", "kwargs": {"max_cycles": 3}})
    _, first = game.reset(seed=0)

    steps = [game.step({0: 0, 1: 1}) for _ in range(3)]

    assert list(first) == [0, 1] and [list(step.reward) for step in steps] == [[-1, 1]] * 3
    assert list(steps[-1].truncated) == [True, True] and not any(steps[-1].terminated)
    assert list(steps[-1].to_move) == [] and not any(steps[0].truncated)
    game.close()


def test_games_from_a_config_never_leave_the_mask() -> None:
    cfg = {
        "type": "petting_zoo", "env_id": TICTACTOE, "flatten": True, "collector_env_num": 4, "evaluator_env_num": 1,
    }  # fmt: skip
    make, collector, _ = get_vec_env_setting(cfg)
    manager = create_env_manager({"type": "game"}, [EnvFactory(each, make) for each in collector])
    assert isinstance(manager, GameEnvManager) and manager.num_lanes == 8
    manager.seed(3)
    manager.launch()
    rng = np.random.default_rng(0)
    returns = np.zeros(8)
    ended = 0
    for _ in range(300):
        lanes = manager.ready.nonzero()[0]
        assert len({lane // 2 for lane in lanes}) == len(lanes) == 4
        masks = manager.obs["action_mask"][lanes]
        answer = manager.step(lanes, np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
        np.add.at(returns, answer.lanes, answer.reward)
        assert not len(answer.dropped)
        for game in manager.ended_games:
            ended += 1
            pair = returns[2 * game : 2 * game + 2]
            assert sorted(pair.tolist()) in ([-1.0, 1.0], [0.0, 0.0])
            pair[:] = 0.0
    assert ended > 100
    manager.close()


def test_what_is_no_such_env_is_one_clear_error() -> None:
    for cfg, said in [
        ({"env_id": None}, "env_id is None; expected an id"),
        ({"env_id": "os.path"}, "env_id is 'os.path'; expected an id"),
        ({"env_id": TICTACTOE, "api": "both"}, "api is 'both'"),
        ({"env_id": "pettingzoo.classic.nothing_v1"}, 'pip install "ding-like'),
        ({"env_id": "classic/nothing-v1"}, "cannot be made"),
    ]:
        with pytest.raises(ConfigError) as caught:
            PettingZooGame(cfg)

        assert said in str(caught.value)


def test_a_manager_of_one_player_refuses_a_game() -> None:
    with pytest.raises(EnvError, match="env.manager.type='game'"):
        create_env_manager({"type": "base"}, [lambda: PettingZooGame({"env_id": TICTACTOE})])


class DiEnginePair:
    """Env of two players in DI-engine's style."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *, cut: bool = False) -> None:
        self._cut = cut

    def seed(self, seed: int, dynamic_seed: bool = True) -> None: ...

    def reset(self) -> Any:
        self._t = 0
        return np.zeros((2, 1), np.float32)

    def step(self, actions: Any) -> Any:
        self._t += 1
        obs = np.array([[self._t], [self._t + 1]], np.float32)
        info = {"TimeLimit.truncated": self._cut}
        return obs, np.array([actions[0], -actions[1]]), self._t == 2, info

    def close(self) -> None: ...


@pytest.mark.parametrize("cut", [False, True])
def test_a_pair_in_the_seeds_style(cut: bool) -> None:
    manager = GameEnvManager([lambda: DiEnginePair(cut=cut)] * 2)
    manager.launch()

    first = manager.step(np.arange(4), np.array([1, 0, 0, 1]))
    last = manager.step(np.arange(4), np.array([1, 1, 1, 1]))

    assert first.reward.tolist() == [1, 0, 0, -1] and not first.terminated.any()
    assert last.next_obs.reshape(-1).tolist() == [2, 3, 2, 3] and manager.obs.reshape(-1).tolist() == [0] * 4
    assert last.terminated.tolist() == [not cut] * 4 and last.truncated.tolist() == [cut] * 4
    manager.close()


def test_what_is_no_game_is_one_clear_error() -> None:
    with pytest.raises(EnvError, match="is not an env of several players"):
        as_game(object())
    with pytest.raises(EnvError, match="1 entries as reward for 2 players"):
        game = PairGame(DiEnginePair())
        game.reset()
        game._env.step = lambda actions: (np.zeros((2, 1)), [1.0], False, {})
        game.step({0: 0, 1: 0})


# --- teams as one lane


def test_a_team_is_its_agents_side_by_side() -> None:
    from mpe2 import simple_spread_v3

    team, alone = PettingZooTeam(SPREAD), simple_spread_v3.parallel_env(**SPREAD["kwargs"])  # type: ignore[arg-type]
    obs, _ = team.reset(seed=3)
    theirs, _ = alone.reset(seed=3)
    rng = np.random.default_rng(0)
    for step in range(5):
        assert (obs["agents"] == np.stack(list(theirs.values())).astype(np.float32)).all()
        assert (obs["state"] == alone.state().astype(np.float32)).all()
        action = rng.integers(0, 5, 3)
        obs, reward, terminated, truncated, _ = team.step(action)
        theirs, rewards, *_ = alone.step(dict(zip(alone.possible_agents, action.tolist(), strict=True)))
        assert reward == pytest.approx(sum(rewards.values()))
        assert (terminated, truncated) == (False, step == 4)
    team.close()
    alone.close()


@pytest.mark.parametrize(("team_reward", "share"), [("sum", 1.0), ("mean", 1 / 3)])
def test_a_team_is_paid_the_sum_of_its_agents_rewards_or_their_mean(team_reward: str, share: float) -> None:
    team = PettingZooTeam({**SPREAD, "team_reward": team_reward})
    team.reset(seed=3)
    obs, reward, *_ = team.step(np.zeros(3, np.int64))

    assert reward == pytest.approx(obs["rewards"].sum() * share, rel=1e-5)
    team.close()


def test_continuous_actions_of_a_team_are_those_of_its_agents_in_a_row() -> None:
    from mpe2 import simple_spread_v3

    kwargs = {**SPREAD["kwargs"], "continuous_actions": True}
    team, alone = PettingZooTeam({**SPREAD, "kwargs": kwargs}), simple_spread_v3.parallel_env(**kwargs)
    team.reset(seed=3)
    alone.reset(seed=3)
    action = np.random.default_rng(0).uniform(0, 1, 15).astype(np.float32)
    obs, *_ = team.step(action)
    theirs, *_ = alone.step(dict(zip(alone.possible_agents, action.reshape(3, 5), strict=True)))

    assert team.action_space == spaces.Box(0.0, 1.0, (15,), np.float32)
    assert (obs["agents"] == np.stack(list(theirs.values())).astype(np.float32)).all()
    team.close()
    alone.close()


class Switches:
    """Env of one agent, who sets bits."""

    possible_agents = ("only",)

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 1, (2,))

    def action_space(self, agent: str) -> spaces.MultiBinary:
        return spaces.MultiBinary(2)

    def reset(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}

    def close(self) -> None: ...


def test_what_is_no_team_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ding_like.envs.team.make_petting_zoo", lambda *arguments: Switches())
    with pytest.raises(ConfigError, match="actions that are all Discrete or all Box"):
        PettingZooTeam({"env_id": "mpe2.switches"})
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="env_id"):
        PettingZooTeam({"env_id": "os.system"})
