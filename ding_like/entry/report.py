"""Put all of an experiment into one page: `ding report EXP`."""

from __future__ import annotations

from pathlib import Path

import click

from ding_like.entry.options import OnceCommand, echo
from ding_like.errors import ConfigError


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


@click.command("report", cls=OnceCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiment", metavar="EXP")
@click.option("-o", "--out", metavar="FILE.html", help="Where to write the page. [EXP/report.html]")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(experiment: str, out: str | None, debug: bool) -> None:
    """Write one page with all of an experiment: verdict, curves, video, scores, config, how to run it again.

    It needs no network and no script, so that it can be sent as it is: ding report my_exp
    """
    echo(str(report(experiment, out)))
