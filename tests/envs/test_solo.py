"""A game as an env of one player: whose turn it is, what is summed, who is seen next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ding_like.envs.manager.versus import SoloEnv
from ding_like.envs.petting_zoo import PettingZooGame
from ding_like.errors import EnvError
from ding_like.policy.random_policy import RandomActor
from dizoo.league_demo.matrix_game import MatrixGame
from tests.worker.collector.scripted_game import ScriptedActor, ScriptedGame, action_of


class Opponent(ScriptedActor):
    """Be asked with the numbers of players in place of those of games."""

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
