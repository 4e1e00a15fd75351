"""Learning gates short enough for every push: fresh evaluations of the last models of CartPole, median over seeds."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.learning.record import record

CONFIGS = Path(__file__).parents[2] / "dizoo/classic_control/cartpole/config"
BAR = 475.0
SEEDS = 3


@pytest.mark.learning_short
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("config", "mode", "env_step"),
    [("cartpole_dqn_config.py", "serial", 15_000), ("cartpole_ppo_config.py", "serial_onpolicy", 20_000)],
    ids=["dqn", "ppo"],
)
def test_cartpole_is_solved(
    config: str, mode: str, env_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Pictures take longer to draw than they are worth here; tests/entry/test_cli.py looks at those of a run.
    monkeypatch.setattr("ding_like.entry.serial_entry.write_pictures", lambda *args, **kwargs: None)

    rows = record(CONFIGS / config, mode=mode, seeds=SEEDS, episodes=20, env_step=env_step, overrides=[])

    values = [row["eval_value"] for row in rows]
    assert statistics.median(values) >= BAR, (
        f"{config}: {SEEDS} seeds of up to {env_step:,} env steps end with mean returns of {values} over 20 fresh "
        f"episodes, {[row['env_step'] for row in rows]} steps taken; their median must reach {BAR:g}. Something that "
        "was changed learns worse: docs/learning has what was recorded, and `make test-learning` runs the other gates"
    )
