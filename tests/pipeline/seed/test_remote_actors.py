"""Actors whose network runs on an inference server act as those with a network of their own, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

from ding_like.errors import ConfigError
from ding_like.policy import Policy, get_policy_cls
from ding_like.policy.dqn import DQNPolicy
from ding_like.policy.forward import ActorPart, check_acts_remotely
from ding_like.types import SeesRewards
from tests.contracts.policy_cases import ACTING, MASKED, Case, draw_obs, make
from tests.pipeline.seed.inference_rig import lanes, remote, rig

REFUSED = {
    name
    for name, case in ACTING.items()
    if getattr(get_policy_cls(dict(type=case.policy)), "rows_need_networks", False)
}
OWN_ACTOR = "dagger"  # acts by the expert in part
REMOTE = {name: case for name, case in ACTING.items() if name not in REFUSED | {OWN_ACTOR}}
SETTING = {
    name: {"eps": 0.3}
    for name in (
        *("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "r2d2", "drqn", "ngu", "pdqn"),
        *("vdn", "qmix", "wqmix", "qtran"),
    )
}


def play(case: Case, policy: Any, *, steps: int = 8, num_lanes: int = 3, masked: bool = False) -> list:
    """Return the columns of some steps, in the later ones of which some lanes are left out and some begin episodes."""
    rng, draws = np.random.default_rng(5), np.random.default_rng(6)
    actor, found = policy.collect_mode.actor if isinstance(policy, Policy) else policy, []
    for step in range(steps):
        part = lanes(num_lanes) if step < 3 else np.flatnonzero(rng.random(num_lanes) < 0.7)
        if not len(part):
            continue
        obs = draw_obs(case, len(part), rng, masked=masked)
        is_first = np.ones(len(part), bool) if step == 0 else rng.random(len(part)) < 0.2
        found.append(actor.act(obs, lanes=part, is_first=is_first, rng=draws, **SETTING.get(case.policy, {})))
        if isinstance(actor, SeesRewards):
            actor.observe(part, rng.normal(size=len(part)).astype(np.float32))
    return found


def assert_equal(one: list, other: list) -> None:
    assert len(one) == len(other)
    for first, second in zip(one, other, strict=True):
        assert list(first) == list(second)
        for name, column in first.items():
            assert column.dtype == second[name].dtype
            np.testing.assert_array_equal(column, second[name], err_msg=name)


# One of each family is in the suite: with a value, with noise in every action, of a team, with memory, with
# probabilities, of a box, of a hybrid space.
IN_SUITE = ("dqn", "rainbow", "qmix", "r2d2", "impala", "sac", "pdqn")


def cases(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters; those that are not IN_SUITE are marked `slow`."""
    return [name if name in IN_SUITE else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", cases(REMOTE))
def test_a_remote_actor_acts_as_a_local_one(name):
    case = REMOTE[name]
    local, other, learner = make(case, seed=1), make(case, seed=2), make(case, seed=1)

    with rig(lambda: make(case, seed=3)) as run:
        run.publish(learner)
        run.serve()
        acted = play(case, remote(other, run.client()))

    assert_equal(acted, play(case, local))


@pytest.mark.parametrize("name", ["dqn", "r2d2"])
def test_an_action_mask_stays_with_the_actor(name):
    case = MASKED[name]
    other = make(case, seed=2)

    with rig(lambda: make(case, seed=3)) as run:
        run.publish(make(case, seed=1))
        run.serve()
        acted = play(case, remote(other, run.client()), masked=True)

    assert_equal(acted, play(case, make(case, seed=1), masked=True))


def test_policies_whose_rows_need_the_critic_are_refused():
    assert "ppo" in REFUSED
    for name in sorted({ACTING[name].policy: name for name in sorted(REFUSED)}.values()):
        with pytest.raises(ConfigError, match="makes its rows by its networks"):
            check_acts_remotely(make(ACTING[name]))


def test_a_policy_with_an_actor_of_its_own_is_refused():
    with pytest.raises(ConfigError, match="DAggerPolicy acts by a MixedActor, of which no inference server can run"):
        check_acts_remotely(make(ACTING[OWN_ACTOR]))


class OwnRows(DQNPolicy):
    """Policy with code of its own for rows."""

    def segment(self, rollout: Any) -> Any:
        return super().segment(rollout)


def test_a_part_holds_no_network_and_can_be_sent_unless_rows_are_made_by_the_policys_own_code() -> None:
    for name in IN_SUITE:
        part = ActorPart.of(make(REMOTE[name]))
        assert part.is_plain() and not isinstance(part.rows, Policy), name
        assert b"torch" not in bytes(ForkingPickler.dumps(part)), name

    own = ActorPart.of(OwnRows(make(REMOTE["dqn"]).cfg))

    assert isinstance(own.rows, OwnRows) and not own.is_plain(), "it is made where the actor is"
