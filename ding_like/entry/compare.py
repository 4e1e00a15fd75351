"""Compare experiments over their seeds: `ding compare A B`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from ding_like.entry.options import OnceCommand, echo
from ding_like.errors import ConfigError

logger = logging.getLogger(__name__)


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


@click.command("compare", cls=OnceCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiments", nargs=-1, required=True, metavar="A B [C]...")
@click.option("-o", "--out", metavar="FILE.png", help="The picture; the figures go beside it. [compare.png]")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(experiments: tuple[str, ...], out: str | None, debug: bool) -> None:
    """Compare experiments over their seeds.

    A table of means and interquartile means with 95 % intervals, and how probable it is that a run of one beats a run
    of another (Agarwal et al. 2021): ding compare dqn ppo
    """
    from ding_like.report.compare import comparison_lines

    compared = compare(experiments, out)
    for line in comparison_lines(compared.comparison):
        echo(line)
    echo(f"\n{compared.picture or ''}  {compared.figures}")
