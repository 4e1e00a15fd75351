"""What is made of a run: `ding plot`, `compare`, `report`, `tb`, `enjoy`, `collect`, `export`, `serve`."""

from __future__ import annotations

import json
import logging
import math
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ding_like.entry.modes import IMPORT_OPTION, WholeNumber, echo, sub_command
from ding_like.errors import ConfigError
from ding_like.utils.processes import describe_status, end_processes, start_child
from ding_like.utils.registries import find_spec, pip_line

if TYPE_CHECKING:
    import torch

    from ding_like.agent.video import Filmed
    from ding_like.config import FrozenConfig
    from ding_like.pipeline.envs import EnvSetting
    from ding_like.report.experiment import Experiment
    from ding_like.serve import ServedPolicy
    from ding_like.serve.http_server import PolicyServer
    from ding_like.types import Factory


logger = logging.getLogger(__name__)

# What a page is made of; it is written again when one of these changes.
_WATCHED = ("metrics.jsonl", "result.json", "agent.gif", "experiment.json")
_REST = 10.0  # times as long as a page took to write
_BOARD_S = 5.0  # in which TensorBoard ends by itself after Ctrl-C
# TensorBoard in a process that ends with its parent, in whatever way that ends.
_BOARD = (
    "import os, runpy\n"
    "from ding_like.utils.processes import watch_parent\n"
    "watch_parent(lambda: os._exit(1))\n"
    "runpy.run_module('tensorboard.main', run_name='__main__', alter_sys=True)"
)


def plot(experiments: Sequence[str | Path], out: str | Path | None = None, *, metric: str | None = None) -> Path:
    """Draw learning curves and return the picture's path.

    One run is drawn in detail, several are compared; a folder of several seeds, and folders that differ in
    `_seed<number>` only, become a mean and a band. `out` is a .png or .svg file, by default `curve.png` in the one
    folder that is given or `compare.png` here. `metric` draws another number of `metrics.jsonl` than the return, one of
    the env's own, `is_success` say; the picture is then `{metric}.png`.
    Folders whose runs have no returns yet are named in the log and left out. Raises ConfigError for a folder without a
    run, where no run has returns, and without matplotlib.
    """
    from ding_like.report.curve import plot_experiments, plot_metric, plot_run
    from ding_like.report.experiment import NoReturnsError, joined, read_experiment

    if not experiments:
        raise ConfigError("there is nothing to draw: give plot the folder of an experiment, or several.")
    folders = list(dict.fromkeys(Path(folder) for folder in experiments))
    found, without = [], []
    for folder in folders:
        try:
            found.append(read_experiment(folder))
        except NoReturnsError as error:
            without.append(str(error))
    if not found:
        raise ConfigError(f"there is nothing to draw. {' '.join(without)}")
    for reason in without:
        logger.warning("left out: %s", reason)
    from ding_like.report.drawing import save_plot

    shown = joined(found)
    first = shown[0]
    is_alone = len(shown) == 1 and first.folder.is_dir()  # not siblings, which have no folder of their own
    path = first.folder / "curve.png" if is_alone else Path("compare.png")
    if metric is not None:
        drawn, path = plot_metric(shown, metric), path.with_name(f"{metric}.png")
    else:
        drawn = plot_run(first.first) if is_alone and first.plan is None else plot_experiments(shown)
    return save_plot(drawn, Path(out) if out else path)


@sub_command("plot")
@click.argument("experiments", nargs=-1, required=True, metavar="EXP...")
@click.option("-o", "--out", metavar="FILE", help="A .png or .svg file. [EXP/curve.png; compare.png for several]")
@click.option("--metric", metavar="NAME", help="Draw another number than the return: is_success, ...")
def plot_command(experiments: tuple[str, ...], out: str | None, metric: str | None) -> None:
    """Draw the learning curves of experiments.

    Several seeds become one curve with a band: ding plot exp other; so do folders that differ in _seed<number> only.
    """
    echo(str(plot(experiments, out, metric=metric)))


class Compared(NamedTuple):
    """Comparison and its files."""

    comparison: dict[str, Any]  # as the JSON file holds it
    picture: Path | None  # None without matplotlib
    figures: Path


def compare(experiments: Sequence[str | Path], out: str | Path | None = None) -> Compared:
    """Compare experiments of one env: means, interquartile means, and probabilities of improvement, with intervals.

    Folders of several seeds, of one run, and siblings `X_seed0`, `X_seed1` may be given. `out` is a .png file, by
    default `compare.png` here; beside it the same name with .json holds the figures. Without matplotlib there is no
    picture, which the log says. Raises ConfigError for fewer than two experiments, different envs, and an experiment of
    which no seed has ended.
    """
    from ding_like.report.compare import compare_experiments, write_comparison
    from ding_like.report.curve import plot_experiments
    from ding_like.report.experiment import read_experiments

    picture = Path(out or "compare.png")
    if picture.suffix != ".png":
        other = picture.with_suffix(".png")
        raise ConfigError(f"a comparison is drawn as .png, not as '{picture.name}': --out {other}")
    found = read_experiments(experiments)
    comparison = compare_experiments(found)
    figures = write_comparison(comparison, picture.with_suffix(".json"))
    try:
        from ding_like.report.drawing import save_comparison
    except ConfigError as error:
        logger.warning("no picture: %s", error)
        return Compared(comparison, None, figures)
    save_comparison(comparison, plot_experiments(found), picture)
    return Compared(comparison, picture, figures)


@sub_command("compare")
@click.argument("experiments", nargs=-1, required=True, metavar="A B [C]...")
@click.option("-o", "--out", metavar="FILE.png", help="The picture; the figures go beside it. [compare.png]")
def compare_command(experiments: tuple[str, ...], out: str | None) -> None:
    """Compare experiments over their seeds.

    A table of means and interquartile means with 95 % intervals, and how probable it is that a run of one beats a run
    of another (Agarwal et al. 2021): ding compare dqn ppo
    """
    from ding_like.report.compare import comparison_lines

    compared = compare(experiments, out)
    for line in comparison_lines(compared.comparison):
        echo(line)
    echo(f"\n{compared.picture or ''}  {compared.figures}")


def report(experiment: str | Path, out: str | Path | None = None, *, reload_s: float | None = None) -> Path:
    """Write one self-contained HTML page about an experiment and return its path.

    `experiment` is the folder of a run or of several seeds, whether they have ended or not. `out` is by default
    `report.html` in it. A browser loads the page again every `reload_s`, until all seeds have ended. Raises ConfigError
    for a folder without a run.
    """
    from ding_like.report.experiment import read_experiment
    from ding_like.report.html import write_page

    found = read_experiment(experiment)
    path = Path(out) if out else (found.folder if found.folder.is_dir() else Path()) / "report.html"
    if path.suffix not in (".html", ".htm"):
        raise ConfigError(f"a report is an .html file, not '{path.name}': --out {path.with_suffix('.html')}")
    return write_page(found, path, reload_s=None if _has_ended(found) else reload_s)


def watch_report(
    experiment: str | Path,
    out: str | Path | None = None,
    *,
    every_s: float = 5.0,
    wrote: Callable[[Path], None] = lambda path: None,
) -> None:
    """Write the page of `report` again whenever the run has written something, until all its seeds have ended.

    `wrote` is called with its path each time. It rests `every_s`, and ten times as long as the page took. A run without
    returns is waited for. Ctrl-C raises KeyboardInterrupt; the page is whole at any time. Raises ConfigError for a
    folder without a run.
    """
    from ding_like.report.experiment import NoReturnsError, read_experiment

    seen: list[tuple[str, int, int]] | None = None
    has_ended = False
    with _signals_wake() as wait:
        while True:
            rest_s, now = every_s, _written(Path(experiment))
            if now == seen and has_ended:
                return  # pictures follow the result
            if now != seen:
                seen, began_s = now, time.monotonic()
                try:
                    wrote(report(experiment, out, reload_s=every_s))
                    has_ended = _has_ended(read_experiment(experiment))
                except NoReturnsError as error:
                    logger.info("%s It is waited for; Ctrl-C ends that.", error)
                rest_s = max(every_s, _REST * (time.monotonic() - began_s))
            wait(rest_s)


def _has_ended(experiment: Experiment) -> bool:
    return len(experiment.ended) == len(experiment.members)


def _written(folder: Path) -> list[tuple[str, int, int]]:
    """Return the state of the files of a run, or of several seeds, that its page is made of."""
    files = [path for name in _WATCHED for path in (folder / name, *folder.glob(f"seed*/{name}"))]
    found = [(path, path.stat()) for path in files if path.is_file()]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]


_REPORTS = """\b
Examples:
  ding report my_exp
  ding report my_exp -o page.html
  ding report my_exp --watch
"""


@sub_command("report", epilog=_REPORTS)
@click.argument("experiment", metavar="EXP")
@click.option("-o", "--out", metavar="FILE.html", help="Where to write the page. [EXP/report.html]")
@click.option("--watch", is_flag=True, help="Write it again as the run goes on, until the run ends or Ctrl-C.")
@click.option(
    "--every-s", type=click.FloatRange(min=0.1), metavar="S", help="With --watch: seconds between two looks. [5]"
)
def report_command(experiment: str, out: str | None, watch: bool, every_s: float | None) -> None:
    """Write one page with all of an experiment: verdict, curves, video, scores, config, how to run it again.

    It needs no network and no script, so that it can be sent as it is. With --watch a browser that shows it loads it
    again by itself while the run goes on.
    """
    if not watch:
        if every_s is not None:
            raise ConfigError(f"--every-s {every_s:g} is of --watch: add --watch.")
        echo(str(report(experiment, out)))
        return
    pages: list[Path] = []

    def wrote(path: Path) -> None:
        if not pages:
            echo(f"{path}  (written again as the run goes on; end it with Ctrl-C)")
        pages.append(path)

    watch_report(experiment, out, every_s=every_s or 5.0, wrote=wrote)
    echo(f"the run has ended; the page was written {len(pages)} times")


# --- ding tb

_BOARDS = """\b
Examples:
  ding tb my_exp
  ding tb my_exp other_exp --port 6007
"""


@sub_command("tb", epilog=_BOARDS)
@click.argument("experiments", nargs=-1, required=True, metavar="EXP...")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Where to listen. [127.0.0.1, this machine alone]")
@click.option("--port", type=WholeNumber(0, 65535), default=6006, metavar="PORT", help="0 is any that is free. [6006]")
def tb_command(experiments: tuple[str, ...], host: str, port: int) -> None:
    """Start TensorBoard on the event files of experiments; it ends with this command, by Ctrl-C.

    Its tags are those of the files: collector_step/reward_mean is over env steps, collector_iter/reward_mean over
    updates. Of several EXP each is shown under its name.
    """
    status = show_board(experiments, host=host, port=port)
    if status:
        raise ConfigError(f"TensorBoard {describe_status(status)}; its own lines above name the reason.")


def show_board(experiments: Sequence[str | Path], *, host: str = "127.0.0.1", port: int = 6006) -> int:
    """Run TensorBoard on the folders of experiments until it ends, and return its exit status.

    Raises ConfigError where it is not installed, and for a folder without a run or without event files.
    """
    from ding_like.report.experiment import check_experiment, read_plan

    if find_spec("tensorboard") is None:
        raise ConfigError(f"TensorBoard is not installed; install it with: {pip_line('tb')}")
    folders = list(dict.fromkeys(Path(each) for each in experiments))
    for folder in folders:
        if read_plan(folder) is None:
            check_experiment(folder)
        if not any(folder.rglob("events*tfevents*")):
            raise ConfigError(f"'{folder}' has no event files: its run has written nothing yet.")
    where = [f"--logdir={folders[0].resolve()}"]
    if len(folders) > 1:
        where = ["--logdir_spec=" + ",".join(f"{folder.name}:{folder.resolve()}" for folder in folders)]
    child = start_child([sys.executable, "-c", _BOARD, *where, f"--host={host}", f"--port={port}"])
    try:
        return child.wait()
    finally:
        end_processes([child], own_s=_BOARD_S)


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

    with closing(build_single_env(make_env)) as manager:
        return build_policy(fit_policy_config(cfg.policy, manager), model=model, modes=["eval"]).eval_mode


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
    experiment: str, ckpt: str, episodes: int | None, seed: int | None, out: str | None, import_names: tuple[str, ...]
) -> None:
    """Play a trained agent and write a video of it: ding enjoy my_exp --ckpt last --episodes 3"""
    from ding_like.report.scores import by_agent

    path, (returns, median_of, metrics) = _film(experiment, ckpt, episodes, out, seed, import_names=import_names)
    listed = "  ".join(f"{value:.4g}" for value in returns)
    more = f"  mean {sum(returns) / len(returns):.4g}" if len(returns) > 1 else ""
    if median_of:
        more = f"  the median of {len(median_of)} episodes from {min(median_of):.4g} to {max(median_of):.4g}"
    agents = by_agent(metrics)
    echo(f"returns {listed}{more}\n" + (f"by agent: {agents}\n" if agents else "") + f"{path}")


_COLLECTS = """\b
Examples:
  ding collect my_exp --episodes 20
  ding collect my_exp --episodes 50 --checkpoint last --out demos.safetensors
  ding collect my_exp --checkpoint iteration_2000.pth.tar -s 7
  ding collect my_exp --levels random,medium,expert --steps 50000 --out data
"""


@sub_command("collect", epilog=_COLLECTS)
@click.argument("experiment", metavar="EXP", required=False)
@click.option("-n", "--episodes", type=WholeNumber(min=1), metavar="N", help="Episodes to play. [10]")
@click.option(
    *("-o", "--out"),
    metavar="FILE",
    help="Where to write them: .safetensors, .hdf5 (D4RL's form) or minari:ID; with --levels a folder. "
    "[EXP/expert_data.safetensors]",
)
@click.option("--checkpoint", "--ckpt", "ckpt", metavar="CKPT", help="best, last, or a file. [best]")
@click.option("-s", "--seed", type=WholeNumber(min=0), metavar="SEED", help="Seed of the episodes. [the run's]")
@click.option("--levels", metavar="LEVELS", help="Write data sets of random,medium,medium-replay,medium-expert,expert.")
@click.option("--steps", type=WholeNumber(min=2), metavar="N", help="Steps of each of the --levels.")
@click.option("-c", "--config", metavar="FILE", help="With --levels: train this config first, in place of EXP.")
@click.option("--env-step", type=WholeNumber(min=1), metavar="N", help="With -c: train for so many env steps.")
@IMPORT_OPTION
def collect_command(
    experiment: str | None,
    episodes: int | None,
    out: str | None,
    ckpt: str | None,
    seed: int | None,
    levels: str | None,
    steps: int | None,
    config: str | None,
    env_step: int | None,
    import_names: tuple[str, ...],
) -> None:
    """Record demonstrations: whole episodes of a trained agent, step by step, in a file.

    EXP is the folder of a run. The agent acts without exploration, in the envs that the run collected in. Configs name
    the file as reward_model.data_path or policy.collect.data_path.

    With --levels it writes data sets for offline reinforcement learning, one file for each level of skill.
    """
    if levels is None:
        if given := [name for name, value in (("--steps", steps), ("-c", config), ("--env-step", env_step)) if value]:
            raise ConfigError(f"{' and '.join(given)} goes with --levels random,medium,medium-replay,expert.")
        if experiment is None:
            raise ConfigError("give the folder of a run: ding collect EXP; or --levels LEVELS -c CONFIG.")
        from ding_like.entry.demonstrations import NUM_EPISODES, collect_demonstrations

        num_episodes = NUM_EPISODES if episodes is None else episodes
        collect_demonstrations(
            experiment,
            num_episodes=num_episodes,
            out=out,
            checkpoint=ckpt or "best",
            seed=seed,
            import_names=import_names,
        )
        return
    if episodes or ckpt:
        raise ConfigError("--levels takes --steps N and the run's own checkpoints: leave --episodes and --ckpt out.")
    if (experiment is None) == (config is None) or steps is None or out is None:
        raise ConfigError("--levels needs --steps N, --out FOLDER, and either EXP, a run's folder, or -c CONFIG.")
    from ding_like.entry.levels import collect_levels

    names = [each.strip() for each in levels.split(",") if each.strip()]
    trained: dict[str, Any] = {"seed": seed, "max_env_step": env_step, "import_names": import_names}
    collect_levels(experiment or str(config), names, num_steps=steps, out=out, **trained)


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


def _ports(ports: list[dict[str, Any]]) -> str:
    return "  ".join(f"{port['name']} {port['dtype']} [{', '.join(map(str, port['shape']))}]" for port in ports)


_SHOWN_VALUES = 32  # of an observation, in the examples that are printed
_LOOK_S = 5.0  # between two checks whether the server's thread is alive


def serve(
    exp_name: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    checkpoint: str = "best",
    token_file: str | Path | None = None,
    reload_s: float = 1.0,
    max_batch: int = 1024,
    client_wraps: bool = False,
    on_cpu: bool = False,
    import_names: Sequence[str] = (),
    started: Callable[[PolicyServer, ServedPolicy], None] = lambda server, served: None,
) -> None:
    """Serve the policy of an experiment until SIGINT, SIGTERM or SIGHUP; `started` is called when the port is open.

    A newer `checkpoint` ('best', 'newest' or a file) is loaded without a pause. Requests under way are answered before
    the port closes; then the signal takes its usual effect: KeyboardInterrupt, or SystemExit with 128 + its number. A
    second signal does so at once. Raises ConfigError or CheckpointError for a run that cannot be served, CommError for
    a host and port that cannot be opened.
    """
    from ding_like.comm.keys import read_token
    from ding_like.errors import CommError, ConfigError
    from ding_like.pipeline.process import StopSignal, training_process
    from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
    from ding_like.serve.http_server import PolicyServer, check_host

    if not math.isfinite(reload_s):
        raise ConfigError(f"reload_s is {reload_s}, expected seconds, such as 1.0.")
    token = None if token_file is None else read_token(token_file)
    check_host(host, token)
    # Forward passes use one thread, as in evaluations; the threads that answer requests start in this context.
    with training_process(), StopSignal() as signals, _signals_wake() as wait:
        blueprint = Blueprint(
            exp_name, client_wraps=client_wraps, on_cpu=on_cpu, max_batch=max_batch, import_names=import_names
        )
        choice = CheckpointChoice(exp_name, checkpoint)
        with ServedPolicy(blueprint, choice, reload_s=reload_s) as served:
            server = PolicyServer(served, host=host, port=port, token=token)
            try:
                server.start()
                started(server, served)
                while signals.received is None:
                    wait(_LOOK_S)
                    if not server.is_alive:
                        raise CommError("the thread that answers requests has ended; the log says why.")
            finally:
                server.close()
                logger.info("%s", _summary(server, served))
        signals.leave()


@contextmanager
def _signals_wake() -> Iterator[Callable[[float], object]]:
    """Yield a function that waits for a number of seconds, or until a signal arrives."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield lambda wait_s: select.select([reader], [], [], wait_s)
        finally:
            signal.set_wakeup_fd(before)


def opening(url: str, served: ServedPolicy, exp_name: str, *, has_token: bool) -> list[str]:
    """Return the lines that tell where the policy is served and how to send it requests."""
    health = served.health()
    example, num_values = served.reader.example(), served.reader.num_values
    state = f"   state {', '.join(health['state'])}" if health["state"] else ""
    lines = [
        f"serving   {exp_name}: {served.agent.version}",
        f"at        {url}",
        f"env       {health['env']}   policy {health['policy']}{state}",
        f"obs       {_one_line(health['obs'])}",
        f"action    {_one_line(health['action'])}",
    ]
    lines += [f"applied   {', '.join(health['wrappers'])}"] if health["wrappers"] else []
    if health["client_wrappers"]:
        lines.append(f"clients   have to apply {', '.join(health['client_wrappers'])} themselves")
    body = '{"obs": obs.tolist()}'
    if num_values <= _SHOWN_VALUES:
        body = json.dumps({"obs": example})
        token = " -H 'Authorization: Bearer TOKEN'" if has_token else ""
        lines.append(f"curl      curl -s {url}/act{token} -H 'Content-Type: application/json' -d '{body}'")
    headers = ', headers={"Authorization": "Bearer TOKEN"}' if has_token else ""
    lines.append(f'python    requests.post("{url}/act", json={body}{headers}).json()["action"]')
    return [*lines, "end it with Ctrl-C"]


def _summary(server: PolicyServer, served: ServedPolicy) -> str:
    """Return the summary line for when the port is closed."""
    done = server.requests.describe()
    took = "" if done["p50_ms"] is None else f", p50 {done['p50_ms']:g} ms, p99 {done['p99_ms']:g} ms"
    last = f"last with {served.agent.version}"
    return f"answered {done['answered']:,} requests{took}; refused {done['refused']:,}; {last}"


def _one_line(space: dict[str, Any]) -> str:
    if "space" not in space:
        return "  ".join(f"{name}: {_one_line(inner)}" for name, inner in space.items())
    if space["space"] == "Discrete":
        return f"a whole number from {space['start']} to {space['start'] + space['n'] - 1}"
    more = [f"{space['nvec']} choices from {space['start']}"] if "nvec" in space else []
    if space.get("low") and len(space["low"]) <= _SHOWN_VALUES:
        more.append(f"from {space['low']} to {space['high']}")
    return " ".join([space["space"], str(tuple(space["shape"])), space["dtype"], *more])


@sub_command("serve")
@click.argument("experiment", metavar="EXP")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Where to listen. [127.0.0.1, this machine alone]")
@click.option("--port", type=WholeNumber(0, 65535), default=0, metavar="PORT", help="0 is any that is free. [0]")
@click.option("--checkpoint", default="best", metavar="CKPT", help="best, newest, or a file. [best]")
@click.option("--token-file", metavar="FILE", help="A secret that clients send; needed for hosts that others reach.")
@click.option(
    "--reload-s",
    type=click.FloatRange(min=0.01),
    default=1.0,
    metavar="S",
    help="How often to look for a newer checkpoint. [1]",
)
@click.option(
    "--max-batch", type=WholeNumber(min=1), default=1024, metavar="N", help="Observations in a request. [1024]"
)
@click.option("--client-wraps", is_flag=True, help="Clients apply the wrappers themselves that remember earlier steps.")
@click.option("--cpu", "on_cpu", is_flag=True, help="Serve on the CPU what was trained on a GPU.")
@IMPORT_OPTION
def serve_command(experiment: str, **options: Any) -> None:
    """Answer observations with a trained agent's actions over HTTP: ding serve my_exp --port 8000

    POST /act takes {"obs": ...}, one observation as the env gives it or a batch, and answers {"action": ..., "version":
    ...}; a safetensors body with a tensor `obs` is answered in safetensors. GET /health tells what is served, and how
    fast. A newer checkpoint of the run is taken without a pause, and every answer names the one that chose its actions.
    """

    has_token = options["token_file"] is not None
    serve(
        experiment,
        **options,
        started=lambda server, served: echo("\n".join(opening(server.url, served, experiment, has_token=has_token))),
    )
