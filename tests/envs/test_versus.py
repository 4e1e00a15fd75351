"""Games as one player sees them: nothing of the opponent reaches the learner, and every side is played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.envs.game import PettingZooGame, SoloEnv
from ding_like.envs.manager.game import GameEnvManager, VersusManager
from ding_like.errors import EnvError
from ding_like.policy.di_engine_view import RandomActor
from ding_like.types import Array
from ding_like.worker.collector.loop import RolloutLoop
from dizoo.league_demo.matrix_game import MatrixGame
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
