"""Draw the learning curves of one or several runs: `ding plot EXP...`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import click

from ding_like.entry.options import OnceCommand, echo
from ding_like.errors import ConfigError

logger = logging.getLogger(__name__)


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
    from ding_like.report.experiment import joined, read_experiment
    from ding_like.report.runs import NoReturnsError

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
    path = Path(out) if out else first.folder / "curve.png" if is_alone else Path("compare.png")
    if metric is not None:
        path = Path(out) if out else path.with_name(f"{metric}.png")
        return save_plot(plot_metric(shown, metric), path)
    if is_alone and first.plan is None:
        return save_plot(plot_run(first.first), path)
    return save_plot(plot_experiments(shown), path)


@click.command("plot", cls=OnceCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiments", nargs=-1, required=True, metavar="EXP...")
@click.option("-o", "--out", metavar="FILE", help="A .png or .svg file. [EXP/curve.png; compare.png for several]")
@click.option("--metric", metavar="NAME", help="Draw another number than the return: is_success, ...")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(experiments: tuple[str, ...], out: str | None, metric: str | None, debug: bool) -> None:
    """Draw the learning curves of experiments.

    Several seeds become one curve with a band: ding plot exp other; so do folders that differ in _seed<number> only.
    """
    echo(str(plot(experiments, out, metric=metric)))
