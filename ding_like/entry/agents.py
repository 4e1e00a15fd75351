"""Video of a trained agent and its export as one file: `ding enjoy EXP`, `ding export EXP --to onnx`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ding_like.entry.options import IMPORT_OPTION, WholeNumber, echo, sub_command
from ding_like.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from ding_like.agent.video import Filmed
    from ding_like.config import FrozenConfig
    from ding_like.pipeline.envs import EnvSetting
    from ding_like.types import Factory


_EXPORTS = """\b
Examples:
  ding export my_exp --to torchscript
  ding export my_exp --to onnx -o agent.onnx --ckpt last
"""


class Enjoyed(NamedTuple):
    """Video of a checkpoint, and the returns of its episodes."""

    path: Path  # the video
    returns: list[float]


def enjoy(
    exp_name: str | Path,
    ckpt: str = "best",
    *,
    num_episodes: int | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    import_names: Sequence[str] = (),
) -> Enjoyed:
    """Play a checkpoint of a finished or running experiment in a fresh env, and write a GIF of it.

    Without `num_episodes` it shows a typical episode, that with the median return of ten. `ckpt` is 'best', 'last' or a
    file. `out` is by default `agent.gif` in the folder, `agent_<ckpt>.gif` for another
    checkpoint than the best. `env_setting` and `model` must be given again if the run was started with them;
    `import_names` are modules of the run's own that it may use. Raises
    ConfigError for a folder without a run, CheckpointError without a checkpoint, EnvError if the env cannot render.
    """
    path, filmed = _film(exp_name, ckpt, num_episodes, out, seed, env_setting, model, import_names)
    return Enjoyed(path, filmed.returns)


def _film(
    exp_name: str | Path,
    ckpt: str,
    num_episodes: int | None,
    out: str | Path | None,
    seed: int | None,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    import_names: Sequence[str] = (),
) -> tuple[Path, Filmed]:
    from ding_like.agent.checkpoints import find_checkpoint
    from ding_like.agent.description import allow_saved_config
    from ding_like.agent.video import filmable, make_video
    from ding_like.config import compile_config
    from ding_like.envs import get_vec_env_setting
    from ding_like.pipeline.statistics import load_agent
    from ding_like.report.experiment import check_experiment

    folder = Path(exp_name)
    check_experiment(folder)
    if out and Path(out).suffix.lower() != ".gif":
        gif = Path(out) / "agent.gif" if Path(out).is_dir() else Path(out).with_suffix(".gif")
        raise ConfigError(f"a video is a .gif file, not '{out}': give -o {gif}")
    if num_episodes is not None and num_episodes < 1:
        raise ConfigError(f"num_episodes is {num_episodes}, expected 1 or more.")
    path = find_checkpoint(folder, ckpt)
    main, create = allow_saved_config(folder, import_names)
    cfg = compile_config(main, create, source=str(folder / "total_config.py"), renew_dir=False, save=False)
    env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
    make_env = filmable(env_cfgs[0], env_fn)
    mode = eval_mode_of(cfg, make_env, model)
    statistics = load_agent(mode, path)
    name = "agent.gif" if ckpt == "best" else f"agent_{path.name.split('.')[0]}.gif"
    video = Path(out) if out else folder / name
    seed = cfg.seed if seed is None else seed
    return video, make_video(mode, make_env, video, seed=seed, num_episodes=num_episodes, statistics=statistics)


def eval_mode_of(cfg: FrozenConfig, make_env: Factory, model: torch.nn.Module | None) -> Any:
    """Return the eval mode of the config's policy, with fresh weights; an env is made to see its spaces."""
    from ding_like.pipeline.envs import build_policy, build_single_env, fit_policy_config

    manager = build_single_env(make_env)
    try:
        return build_policy(fit_policy_config(cfg.policy, manager), model=model, modes=["eval"]).eval_mode
    finally:
        manager.close()


@sub_command("enjoy")
@click.argument("experiment", metavar="EXP")
@click.option("--ckpt", default="best", metavar="CKPT", help="best, last, or a file. [best]")
@click.option(
    "-n",
    "--episodes",
    type=WholeNumber(min=1),
    metavar="N",
    help="Play and show N episodes. [one: that with the median return of ten]",
)
@click.option("-s", "--seed", type=int, metavar="SEED", help="Seed of the episodes. [the run's]")
@click.option("-o", "--out", metavar="FILE.gif", help="Where to write the video. [EXP/agent.gif]")
@IMPORT_OPTION
def enjoy_command(
    experiment: str,
    ckpt: str,
    episodes: int | None,
    seed: int | None,
    out: str | None,
    import_names: tuple[str, ...],
) -> None:
    """Play a trained agent and write a video of it: ding enjoy my_exp --ckpt last --episodes 3"""
    path, (returns, median_of) = _film(experiment, ckpt, episodes, out, seed, import_names=import_names)
    listed = "  ".join(f"{value:.4g}" for value in returns)
    more = f"  mean {sum(returns) / len(returns):.4g}" if len(returns) > 1 else ""
    if median_of:
        more = f"  the median of {len(median_of)} episodes from {min(median_of):.4g} to {max(median_of):.4g}"
    echo(f"returns {listed}{more}\n{path}")


@sub_command("export", epilog=_EXPORTS)
@click.argument("experiment", metavar="EXP")
@click.option("--to", "form", type=click.Choice(["torchscript", "onnx"]), required=True, help="Which kind of file.")
@click.option("-o", "--out", metavar="FILE", help="Where to write it. [EXP/agent.pt or EXP/agent.onnx]")
@click.option("--ckpt", default="best", metavar="CKPT", help="best, last, or a file. [best]")
@IMPORT_OPTION
def export_command(experiment: str, form: str, out: str | None, ckpt: str, import_names: tuple[str, ...]) -> None:
    """Write a trained agent as one file, from observations to actions, and check it against the agent.

    The file needs neither ding_like nor the env; its metadata describe inputs and outputs.
    """
    from ding_like.agent.export import export

    done = export(experiment, to=form, out=out, which=ckpt, import_names=import_names)  # type: ignore[arg-type]  # click has checked it
    told = done.metadata
    lines = [f"{kind:<9} {_ports(told[kind])}" for kind in ("inputs", "outputs")]
    if told["wrappers_to_apply"]:
        lines.append(f"apply     {', '.join(str(each['type']) for each in told['wrappers_to_apply'])} to observations")
    checked = [f"{done.drawn.num_actions} actions on random observations"]
    checked += [f"{done.played.num_actions} on those of the env"] if done.played else []
    largest = max(each.difference for each in (done.drawn, done.played) if each)
    lines.append(f"checked   {', '.join(checked)}; largest difference {largest:.2g}")
    echo("\n".join([*lines, str(done.path)]))


def _ports(ports: list[dict[str, object]]) -> str:
    return "  ".join(f"{port['name']} {port['dtype']} {_shape(port['shape'])}" for port in ports)


def _shape(shape: object) -> str:
    assert isinstance(shape, list), "a port's shape is a list"
    return f"[{', '.join(map(str, shape))}]"
