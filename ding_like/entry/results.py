"""Curves, comparisons and reports of experiments: `ding plot`, `ding compare`, `ding report`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from ding_like.entry.options import echo, sub_command
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
    path = Path(out) if out else first.folder / "curve.png" if is_alone else Path("compare.png")
    if metric is not None:
        path = Path(out) if out else path.with_name(f"{metric}.png")
        return save_plot(plot_metric(shown, metric), path)
    if is_alone and first.plan is None:
        return save_plot(plot_run(first.first), path)
    return save_plot(plot_experiments(shown), path)


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


def report(experiment: str | Path, out: str | Path | None = None) -> Path:
    """Write one self-contained HTML page about an experiment and return its path.

    `experiment` is the folder of a run or of several seeds, whether they have ended or not. `out` is by default
    `report.html` in it. Raises ConfigError for a folder without a run.
    """
    from ding_like.report.experiment import read_experiment
    from ding_like.report.html import write_page

    found = read_experiment(experiment)
    path = Path(out) if out else (found.folder if found.folder.is_dir() else Path()) / "report.html"
    if path.suffix not in (".html", ".htm"):
        raise ConfigError(f"a report is an .html file, not '{path.name}': --out {path.with_suffix('.html')}")
    return write_page(found, path)


@sub_command("report")
@click.argument("experiment", metavar="EXP")
@click.option("-o", "--out", metavar="FILE.html", help="Where to write the page. [EXP/report.html]")
def report_command(experiment: str, out: str | None) -> None:
    """Write one page with all of an experiment: verdict, curves, video, scores, config, how to run it again.

    It needs no network and no script, so that it can be sent as it is: ding report my_exp
    """
    echo(str(report(experiment, out)))
