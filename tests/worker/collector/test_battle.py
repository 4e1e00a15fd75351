"""Battle collectors: every row is its player's own, of its game, and nothing is lost, doubled or crossed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ding_like.data.batch import TransitionBatch
from ding_like.envs.manager.game import GameEnvManager
from ding_like.errors import ConfigError, EnvError
from ding_like.worker import BattleEpisodeSerialCollector, BattleSampleSerialCollector, create_serial_collector
from tests.worker.collector.scripted_game import ScriptedActor, ScriptedGame, action_of


def manager_of(games: int = 3, **kwargs: Any) -> GameEnvManager:
    def maker(game: int) -> Callable[[], ScriptedGame]:
        episodes = [-1]
        return lambda: ScriptedGame(game, episodes=episodes, **kwargs)

    return GameEnvManager([maker(game) for game in range(games)])


def mode(*, collect_data: bool = True, on_policy: bool = False, **attributes: Any) -> Any:
    """Return a collect mode that hands its rows out as they are, lane by lane."""
    own = {"collect_data": collect_data, "on_policy": on_policy, **attributes}

    def segment(rollout: Any) -> tuple[TransitionBatch, Any]:
        return TransitionBatch(rollout.columns()), np.zeros(rollout.num_lanes, np.int64)

    return SimpleNamespace(
        actor=ScriptedActor(),
        segment=segment,
        num_ready=lambda length, ended: int(length.sum()),
        get_attribute=lambda name: own[name] if name in own else (_ for _ in ()).throw(NotImplementedError),
        forward=None, process_transition=None, get_train_sample=None, reset=None, set_attribute=None,
        state_dict=None, load_state_dict=None,
    )  # fmt: skip


def collector_of(name: str, folder: Path, manager: Any, modes: Any, **cfg: Any) -> Any:
    return create_serial_collector(
        {"type": name, "collect_print_freq": 1, **cfg}, env=manager, policy=modes, exp_name=str(folder)
    )


Row = tuple[int, int, int, int, int, float, bool]  # game, player, episode, move, next move, reward, terminated


def rows_of(batch: Any) -> list[Row]:
    """Return what rows say of themselves, after looking at each."""
    found = []
    for row in TransitionBatch(batch.columns) if isinstance(batch, TransitionBatch) else batch:
        obs, next_obs = row["obs"].astype(int).tolist(), row["next_obs"].astype(int).tolist()
        assert obs[:3] == next_obs[:3], "a row of two games"
        assert int(row["action"]) == action_of(*obs)
        assert int(row["env_id"]) == obs[0]
        found.append((*obs, next_obs[3], float(row["reward"]), bool(row["terminated"])))
    return found


def played(games: int, moves: int, *, num_players: int, in_turn: bool, lengths: Any = (3, 5, 1, 4)) -> list[Row]:
    """Play every game for so many moves, one after the other, and return all rows: the slow obvious version."""
    rows: list[Row] = []
    for game in range(games):
        episode = move = 0
        is_open: dict[int, int] = {}  # player -> its move
        given = [0.0] * num_players  # since the player's last row; what comes before its first move is of its first row
        for _ in range(moves):
            for player in [move % num_players] if in_turn else range(num_players):
                is_open[player] = move
            move += 1
            over = move >= lengths[(game + episode) % len(lengths)]
            given = [reward + 100 * episode + 10 * move + player for player, reward in enumerate(given)]
            closing = list(is_open) if over or not in_turn else [move % num_players]
            for player in closing:
                if player in is_open:
                    rows.append((game, player, episode, is_open.pop(player), move, given[player], over))
                    given[player] = 0.0
            if over:
                episode, move, is_open, given = episode + 1, 0, {}, [0.0] * num_players
    return rows


@pytest.mark.parametrize(("num_players", "in_turn"), [(2, False), (2, True), (3, False), (4, True)])
def test_every_row_is_that_of_the_slow_version(tmp_path: Path, num_players: int, in_turn: bool) -> None:
    manager = manager_of(num_players=num_players, in_turn=in_turn)
    modes = [mode() for _ in range(num_players)]
    collector = collector_of("sample_1v1", tmp_path, manager, modes)

    found: list[Row] = []
    for _ in range(8):
        data, infos = collector.collect(n_sample=10)
        assert len(infos) == num_players and [len(each) for each in data] == [10] * num_players
        for player, each in enumerate(data):
            mine = rows_of(each)
            assert {row[1] for row in mine} == {player}
            found += mine

    assert len(set(found)) == len(found), "a row comes twice"
    expected = played(3, 400, num_players=num_players, in_turn=in_turn)
    assert set(found) <= set(expected)
    for player in range(num_players):
        for game in range(3):  # in order, and without gaps
            mine = [row for row in found if row[:2] == (game, player)]
            own = [row for row in expected if row[:2] == (game, player)]
            assert mine == own[: len(mine)] and len(mine) > 10
    collector.close()


def test_a_side_whose_data_are_not_kept_only_plays(tmp_path: Path) -> None:
    modes = [mode(), mode(collect_data=False)]
    collector = collector_of("sample_1v1", tmp_path, manager_of(), modes)

    data, infos = collector.collect(n_sample=20)

    assert len(data[0]) == 20 and data[1] == [] and modes[1].actor.seen > 0
    assert len(infos[0]) == len(infos[1]) > 0 and all("eval_episode_return" in info for info in infos[1])
    assert collector.envstep >= 20
    collector.close()


def test_surplus_leads_the_next_call_or_is_returned(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(), mode()])

    first, _ = collector.collect(n_sample=4, drop_extra=True)
    second, _ = collector.collect(n_sample=4, drop_extra=False)

    assert len(first[0]) == 4 and len(second[0]) >= 4
    both = rows_of(first[0]) + rows_of(second[0])
    assert len(set(both)) == len(both) and both[4][3] == 1, "rows of one step may be parted, none is lost"
    collector.close()


def test_on_policy_surplus_is_dropped(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(on_policy=True), mode(on_policy=True)])

    first, _ = collector.collect(n_sample=4)
    second, _ = collector.collect(n_sample=4)

    assert [len(each) for each in first + second] == [4] * 4
    assert not set(rows_of(first[0])) & set(rows_of(second[0]))
    collector.close()


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("fault", ["raise", "nan", "reward"])
def test_a_game_that_breaks_is_dropped_for_both_sides_and_nothing_crosses(
    tmp_path: Path, fault: str, in_turn: bool
) -> None:
    manager = manager_of(in_turn=in_turn, lengths=(4,), faults={(1, 2, 3): fault})
    collector = collector_of("sample_1v1", tmp_path, manager, [mode(), mode()])

    data, _ = collector.collect(n_sample=60)

    for player, each in enumerate(data):
        mine = rows_of(each)
        assert {row[1] for row in mine} == {player}
        assert not [row for row in mine if row[:3] == (1, player, 2)], "rows of the broken game"
        assert [row for row in mine if row[0] == 1 and row[2] > 2], "the game goes on"
    collector.close()


def test_a_player_who_is_out_early_ends_its_episode_then(tmp_path: Path) -> None:
    manager = manager_of(games=1, num_players=3, lengths=(4,), early=2)
    collector = collector_of("sample_1v1", tmp_path, manager, [mode(), mode(), mode()])

    data, _ = collector.collect(n_sample=8)

    moves = [[row[3] for row in rows_of(each)] for each in data]
    assert moves[0] == [0, 1] * 4 and moves[1] == [0, 1, 2, 3] * 2
    assert [row[6] for row in rows_of(data[0])] == [False, True] * 4
    collector.close()


@pytest.mark.parametrize("in_turn", [False, True])
def test_whole_games_are_collected_each_begun_in_the_call(tmp_path: Path, in_turn: bool) -> None:
    lengths = (3, 5, 2, 4)
    collector = collector_of("episode_1v1", tmp_path, manager_of(in_turn=in_turn, lengths=lengths), [mode(), mode()])

    data, infos = collector.collect(n_episode=7)

    assert [len(each) for each in data] == [7, 7] and [len(each) for each in infos] == [7, 7]
    for player, episodes in enumerate(data):
        for episode in episodes:
            rows = rows_of(episode)
            assert len({row[:3] for row in rows}) == 1 and rows[0][1] == player
            assert [row[6] for row in rows] == [False] * (len(rows) - 1) + [True]
            length = lengths[(rows[0][0] + rows[0][2]) % 4]
            assert [row[3] for row in rows] == list(range(player if in_turn else 0, length, 2 if in_turn else 1))
    collector.close()


def test_training_samples_of_whole_games(tmp_path: Path) -> None:
    collector = collector_of("episode_1v1", tmp_path, manager_of(), [mode(), mode()], get_train_sample=True)

    data, _ = collector.collect(n_episode=3)

    assert all(isinstance(each, TransitionBatch) for each in data) and len(data[0]) == 3 + 5 + 1
    collector.close()


def test_the_env_step_count_can_be_set_and_goes_on_with_new_envs(tmp_path: Path) -> None:
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(), mode()])
    collector.collect(n_sample=9)
    assert collector.envstep == 9  # three moves of three games

    collector.envstep = 100
    collector.reset_env(manager_of())
    collector.collect(n_sample=9)
    assert collector.envstep == 109
    collector.close()


def test_what_cannot_be_collected_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two policies or more"):
        collector_of("sample_1v1", tmp_path, manager_of(), [mode()])
    with pytest.raises(ConfigError, match="exactly 2 policies; 3"):
        collector_of("episode_1v1", tmp_path, manager_of(num_players=3), [mode()] * 3)
    with pytest.raises(ConfigError, match="3 policies for envs of 2 players"):
        collector_of("sample_1v1", tmp_path, manager_of(), [mode()] * 3)
    collector = collector_of("sample_1v1", tmp_path, manager_of(), [mode(), mode()])
    with pytest.raises(ConfigError, match="needs n_sample"):
        collector.collect()
    with pytest.raises(ConfigError, match="fewer than 3 envs"):
        collector_of("episode_1v1", tmp_path, manager_of(), [mode(), mode()]).collect(n_episode=2)
    with pytest.raises(ConfigError, match="call reset"):
        BattleSampleSerialCollector({"collect_print_freq": 1}, exp_name=str(tmp_path)).collect(n_sample=1)
    assert issubclass(BattleEpisodeSerialCollector, object)


def test_all_who_are_to_move_must_be_given(tmp_path: Path) -> None:
    manager = manager_of()
    manager.launch()

    with pytest.raises(EnvError, match=r"players \[0\] of game 0 were given, but \[0, 1\] are to move"):
        manager.step(np.array([0]), np.array([0]))


def test_a_game_that_always_breaks_ends_the_run(tmp_path: Path) -> None:
    faults = {(0, episode, 1): "raise" for episode in range(20)}
    # Every game that is made anew has the fault again.
    episodes = [-1]
    manager = GameEnvManager([lambda: ScriptedGame(0, episodes=episodes, faults=faults)])
    collector = collector_of("sample_1v1", tmp_path, manager, [mode(), mode()])

    with pytest.raises(EnvError, match="broke 5 times without finishing an episode"):
        collector.collect(n_sample=10)
