"""A run with decentralised updates never saves a point that holds half of what its ranks have learned."""

from __future__ import annotations

from typing import Any

import pytest

from ding_like.pipeline.checkpoint import resume_store
from ding_like.pipeline.turns import TurnsLostError
from tests.pipeline.ray import runs
from tests.pipeline.ray.test_run import endless, noting_host
from tests.pipeline.ray.test_scheme import dqn

pytestmark = pytest.mark.usefixtures("in_tmp")


def lose(kind: str, configs: Any, *, keeps_point_at: int = 0) -> str:
    """Run until all workers of a kind, and those that replace them, are killed; return what is said."""
    host, started = noting_host()

    def wrap(make: Any) -> Any:
        def made(is_leaving: Any) -> Any:
            turns = make(is_leaving)
            take, count = turns.take, [0]

            def kill_and_take() -> None:
                count[0] += 1
                if count[0] > 6:
                    for worker in [each for each in started if each.name.startswith(kind)]:
                        host.kill(worker)
                take()

            turns.take = kill_and_take
            return turns

        return made

    with pytest.raises(TurnsLostError) as lost:
        chosen = runs.settings(2, grad_workers=2, decentralized=True)
        runs.scheme(configs, chosen, wrap=wrap, host=host, max_env_step=90_000)
    return str(lost.value)


def optimizer_steps(state: Any) -> int:
    """Return the number of updates that the optimizer's state has seen."""
    return int(state["optimizer"]["num_steps"])


def test_with_lost_collectors_the_point_has_all_that_the_ranks_have_learned() -> None:
    said = lose("collector", endless(dqn()))

    saved = resume_store("scheme").load_newest().parts
    updates = saved["run"]["learner"]["last_iter"]
    assert "saved, go on with" in said and updates >= 40
    assert optimizer_steps(saved["policy"]) == updates


def test_with_all_ranks_lost_nothing_is_saved_and_an_earlier_point_is_named() -> None:
    main, create = endless(dqn())
    main["resume"] = dict(save_every_env_steps=130)
    said = lose("gradient", (main, create))

    saved = resume_store("scheme").load_newest()
    assert f"go on from env step {saved.step:,}, saved before, with  ding --resume scheme" in said
    assert optimizer_steps(saved.parts["policy"]) == saved.parts["run"]["learner"]["last_iter"]
