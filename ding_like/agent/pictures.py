"""Make the pictures of a finished run."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ding_like.agent.checkpoints import find_checkpoint
from ding_like.agent.video import filmable, make_video
from ding_like.envs import get_vec_env_setting
from ding_like.errors import DingError
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.statistics import load_agent
from ding_like.report.curve import plot_run
from ding_like.report.runs import read_run
from ding_like.types import State
from ding_like.utils.imports import describe_error, raised_at

logger = logging.getLogger(__name__)


def write_pictures(
    cfg: Any,
    policy: Any,  # a Policy, or anything with an eval mode
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
) -> None:
    """Write `curve.png` and `agent.gif`, one episode of the best checkpoint, into the experiment's folder.

    A picture that cannot be made costs one line in the log and nothing else. The policy is left as it was.
    """
    folder = Path(cfg.exp_name)
    _try("curve", lambda: _draw_curve(folder))
    _try("video", lambda: _film_best(cfg, policy, folder, seed=seed, env_setting=env_setting))


def _try(what: str, make: Callable[[], object]) -> None:
    try:
        make()
    except DingError as error:
        logger.info("no %s: %s", what, str(error).partition("\n")[0])
    except Exception as error:  # env and drawing libraries may raise anything; the run has ended well without a picture
        logger.info("no %s: %s", what, describe_error(error), exc_info=not raised_at(error))


def _draw_curve(folder: Path) -> None:
    from ding_like.report.drawing import save_plot  # matplotlib, an extra, is imported as late as can be

    save_plot(plot_run(read_run(folder)), folder / "curve.png")


def _film_best(cfg: Any, policy: Any, folder: Path, *, seed: int, env_setting: EnvSetting | None) -> None:
    env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
    mode = policy.eval_mode
    with weights_of(mode, find_checkpoint(folder, "best")) as statistics:
        make_video(mode, filmable(env_cfgs[0], env_fn), folder / "agent.gif", seed=seed, statistics=statistics)


@contextmanager
def weights_of(mode: Any, path: Path) -> Iterator[Sequence[Sequence[State]]]:
    """Let a mode of a policy have the weights of a checkpoint meanwhile; give the statistics saved with them."""
    own = copy.deepcopy(mode.state_dict())
    statistics = load_agent(mode, path)
    try:
        yield statistics
    finally:
        mode.load_state_dict(own)
