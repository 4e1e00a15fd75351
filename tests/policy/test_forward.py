"""Forward and choose: one pass for all lanes, state kept by lane, numpy and torch alike."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from ding_like.errors import SchemaError
from ding_like.model.q_networks import DQN
from ding_like.policy.forward import EpsilonGreedy, ForwardActor, NetworkForward
from ding_like.types import Array, Obs

ACTIONS = 3


class Recurrent:
    """`Forward` with memory: h' = h / 2 + obs, and the values of actions are h' itself."""

    initial_state: Mapping[str, Array] = {"h": np.array([1.0, 0.0, -1.0], np.float32)}

    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        assert not isinstance(obs, dict)
        h = state["h"] / 2 + obs
        return h, {"h": h}


class Forgetful(Recurrent):
    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        return super().__call__(obs, state)[0], {}


class OfOneRow(Recurrent):
    def __call__(self, obs: Obs, state: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
        h, _ = super().__call__(obs, state)
        return h, {"h": h[:1]}


def act(actor: ForwardActor, obs: Array, lanes: list[int], first: list[int] | None = None) -> dict[str, Array]:
    is_first = np.isin(lanes, first or [])
    return actor.act(obs, lanes=np.array(lanes, np.int64), is_first=is_first, rng=np.random.default_rng(0))


def episode(rng: np.random.Generator, steps: int) -> Array:
    return rng.normal(size=(steps, ACTIONS)).astype(np.float32)


def alone(obs: Array) -> tuple[Array, Array]:
    """Return the actions [T] and the states before them [T, 3] of one episode, step by step."""
    h, actions, states = Recurrent.initial_state["h"], [], []
    for row in obs:
        states.append(h)
        h = h / 2 + row
        actions.append(h.argmax())
    return np.array(actions), np.array(states)


def test_state_is_kept_by_lane_whichever_lanes_are_ready() -> None:
    actor, rng = ForwardActor(Recurrent(), EpsilonGreedy()), np.random.default_rng(0)
    obs = [episode(rng, 6) for _ in range(4)]
    step = [0] * 4
    seen: list[list[tuple[Array, Array]]] = [[] for _ in range(4)]

    for lanes in ([0, 1, 2], [2], [3, 0], [1, 3], [0, 1, 2, 3], [2, 3], [0], [0, 1, 2, 3]):
        first = [lane for lane in lanes if step[lane] == 0]
        columns = act(actor, np.stack([obs[lane][step[lane]] for lane in lanes]), lanes, first)
        for row, lane in enumerate(lanes):
            seen[lane].append((columns["action"][row], columns["state/h"][row]))
            step[lane] += 1

    for lane, rows in enumerate(seen):
        actions, states = alone(obs[lane][: step[lane]])
        assert [action for action, _ in rows] == actions.tolist()
        assert np.array_equal([state for _, state in rows], states)


def test_an_episodes_first_step_begins_with_the_initial_state() -> None:
    actor, obs = ForwardActor(Recurrent(), EpsilonGreedy()), np.ones((2, ACTIONS), np.float32)
    act(actor, obs, [0, 1], [0, 1])

    states = act(actor, obs, [0, 1], [1])["state/h"]

    assert states.tolist() == [[1.5, 1.0, 0.5], [1.0, 0.0, -1.0]]


def test_reset_forgets_the_lanes_that_it_names_or_all() -> None:
    actor, obs = ForwardActor(Recurrent(), EpsilonGreedy()), np.ones((2, ACTIONS), np.float32)
    act(actor, obs, [0, 1], [0, 1])
    actor.reset(np.array([1, 7]))  # lane 7 was never seen

    states = act(actor, obs, [0, 1])["state/h"]
    actor.reset()
    fresh = act(actor, obs, [0, 1])["state/h"]

    assert states.tolist() == [[1.5, 1.0, 0.5], [1.0, 0.0, -1.0]]
    assert fresh.tolist() == [[1.0, 0.0, -1.0]] * 2


def test_a_saved_actor_goes_on_where_it_was() -> None:
    actor, obs = ForwardActor(Recurrent(), EpsilonGreedy()), episode(np.random.default_rng(1), 2)
    act(actor, obs, [0, 2], [0, 2])
    other = ForwardActor(Recurrent(), EpsilonGreedy())

    other.load_state_dict(copy.deepcopy(actor.state_dict()))

    assert np.array_equal(act(actor, obs, [0, 2])["state/h"], act(other, obs, [0, 2])["state/h"])


def test_a_feed_forward_actor_saves_nothing_and_logs_no_state() -> None:
    model = DQN(2, ACTIONS, [4])
    actor = ForwardActor(NetworkForward(model.q, model, torch.device("cpu")), EpsilonGreedy())

    columns = act(actor, np.ones((2, 2), np.float32), [0, 1], [0, 1])

    assert list(columns) == ["action"]
    assert actor.state_dict() == {}


@pytest.mark.parametrize("forward", [Forgetful(), OfOneRow()], ids=["no column", "one row"])
def test_state_that_is_not_that_of_the_rows_is_refused(forward: Recurrent) -> None:
    actor = ForwardActor(forward, EpsilonGreedy())

    with pytest.raises(SchemaError, match="recurrent state"):
        act(actor, np.ones((2, ACTIONS), np.float32), [0, 1], [0, 1])


@pytest.mark.parametrize("dueling", [True, False])
def test_numpy_and_torch_say_the_same_in_arrays_and_in_tensors(dueling: bool) -> None:
    model = DQN(4, ACTIONS, [8], dueling=dueling)
    fast = NetworkForward(model.q, model, torch.device("cpu"))
    plain = NetworkForward(model.q, None, torch.device("cpu"))
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)

    assert np.allclose(fast.array(obs), plain.array(obs), atol=1e-6)
    assert np.array_equal(fast.tensor(obs).numpy(), fast.array(obs))
    assert np.array_equal(plain.tensor(torch.from_numpy(obs)).numpy(), plain.array(obs))
    assert not plain.tensor(obs).requires_grad
