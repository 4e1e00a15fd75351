"""A run that its budget makes pointless is refused before it starts, in every mode."""

from __future__ import annotations

import pytest

from ding_like.entry import cli


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize("mode", ["serial", "parallel", "seed", "ray"])
def test_returns_of_more_steps_than_the_run_are_refused(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", mode, "-e", "cartpole", "-p", "dqn", "--env-step", "1000", "policy.nstep=5000"]

    with pytest.raises(SystemExit):
        cli.main(words)

    assert "policy.nstep is 5,000, more than the 1,000 env steps of the run" in capsys.readouterr().err
