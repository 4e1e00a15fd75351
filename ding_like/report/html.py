"""Put all that is known of an experiment into one page that needs nothing else: no network, no script."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ding_like import __version__
from ding_like.errors import escape_controls
from ding_like.report.curve import plot_groups, plot_run
from ding_like.report.draw_svg import svg_of
from ding_like.report.env_metrics import env_metrics, metric_plot
from ding_like.report.experiment import Experiment, Member, seed_log
from ding_like.report.markup import Fact, Html, details, element, facts, joined, picture, section, table
from ding_like.report.page_style import STYLE
from ding_like.report.plot import Plot
from ding_like.report.runs import Reports, last_lines
from ding_like.report.score_table import said, state_of, summary_of
from ding_like.report.text import clock, interval, measure
from ding_like.utils.files import atomic_write

_MAX_VIDEO_BYTES = 8_000_000  # a larger one is left out: a page is to be sent by mail
_LOG_LINES = 12


def write_page(experiment: Experiment, path: Path) -> Path:
    """Write the page into a file and return its path."""
    with atomic_write(path) as file:
        file.write(escape_controls(page_of(experiment)).encode())
    return path


def page_of(experiment: Experiment) -> str:
    """Return the page: verdict, curves, video, scores, evaluations, config, and how to run it again."""
    title = f"{experiment.policy or 'a policy'} on {experiment.env or 'an env'}"
    body = [
        _header(experiment, title),
        *_curves(experiment),
        *_videos(experiment),
        _scores(experiment),
        *_metrics(experiment),
        _evaluations(experiment),
        _config(experiment),
        _reproduce(experiment),
        *_logs(experiment),
        element("footer", f"written by ding_like {__version__} at {time.strftime('%Y-%m-%d %H:%M:%S')}"),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{element('title', f'{title}: {experiment.name}')}\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{element('main', joined(body))}\n</body>\n</html>\n"
    )


def _header(experiment: Experiment, title: str) -> Html:
    word, look = _verdict(experiment)
    summary = summary_of(experiment)
    several = len(experiment.members) > 1
    ended = experiment.ended
    shown = [Fact("experiment", experiment.name, _when(experiment))]
    if several:
        shown.append(Fact("seeds", f"{len(ended)} of {len(experiment.members)} ended"))
    if several and ended:
        shown.append(_estimate_fact("last models return", summary["mean"]))
        shown.append(_estimate_fact("interquartile mean", summary["iqm"]))
    elif ended:
        row = summary["seeds"][0]
        note = f"95% CI {interval(*row['eval_interval'])}, {row['episodes']} fresh episodes"
        shown.append(Fact("last model returns", measure(row["eval_value"]), note))
    best = [row["best_eval"] for row in summary["seeds"] if "best_eval" in row]
    if best:
        shown.append(Fact("best evaluation", measure(max(best))))
    steps = [row["env_step"] for row in summary["seeds"] if "env_step" in row]
    shown.append(Fact("env steps", f"{max(steps):,}", "the most of a seed" if several else ""))
    if ended:
        duration_s = sum(each.result["duration_s"] for each in ended)
        shown.append(Fact("time", clock(duration_s), "of all seeds together" if several else ""))
    stop = experiment.first.stop_value
    if stop is not None:
        shown.append(Fact("to reach", measure(stop), "stop value of an evaluation"))
    heading = element("h1", title, " ", element("span", word, class_=f"badge {look}"))
    return element("header", heading, element("p", str(experiment.folder.resolve()), class_="soft"), facts(shown))


def _estimate_fact(name: str, estimated: Mapping[str, Any]) -> Fact:
    ends = estimated["interval"]
    return Fact(name, measure(estimated["value"]), f"95% CI {interval(*ends)}" if ends else "of one seed")


def _verdict(experiment: Experiment) -> tuple[str, str]:
    """Return how the experiment stands in a word, and how that looks."""
    ended, members = experiment.ended, experiment.members
    left = len(members) - len(ended)
    if left:
        return ("not ended" if len(members) == 1 else f"{left} of {len(members)} not ended"), "going"
    stop = experiment.first.stop_value
    solved = sum(stop is not None and each.result["eval_value"] >= stop for each in ended)
    if solved == len(members):
        return "solved", "good"
    if stop is None:
        return "done", "good"
    return ("stop value not reached" if len(members) == 1 else f"{solved} of {len(members)} solved"), "warn"


def _when(experiment: Experiment) -> str:
    times = sorted(str(each.result.get("finish_time", "")) for each in experiment.ended)
    return f"ended {times[-1]}" if times and times[-1] else ""


def _figure(plot: Plot, caption: str = "") -> Html:
    drawn = element("div", Html(svg_of(plot)), class_="scroll")
    return element("figure", drawn, *([element("figcaption", caption)] if caption else []))


def _curves(experiment: Experiment) -> Iterator[Html]:
    runs = experiment.runs
    if len(experiment.members) == 1:
        yield section("Learning curve", _figure(plot_run(runs[0])))
        return
    single = [
        details(f"seed {each.seed} alone", _figure(plot_run(each.run))) for each in experiment.members if each.run
    ]
    yield section("Learning curves", _figure(plot_groups(runs)), *single)


def _videos(experiment: Experiment) -> Iterator[Html]:
    """Yield the video of the seed in the middle: the best one would flatter."""
    filmed = [each for each in experiment.members if _has_video(each)]
    if not filmed:
        return
    ranked = sorted(filmed, key=lambda each: each.score if each.score is not None else float("-inf"))
    shown = ranked[len(ranked) // 2]
    of = f", seed {shown.seed}" if len(experiment.members) > 1 else ""
    image = picture(shown.folder / "agent.gif", "image/gif", "an episode of the best model")
    caption = f"an episode of the best model{of}; another: ding enjoy {shlex.quote(str(shown.folder))}"
    yield section("Video", element("figure", image, element("figcaption", caption)))


def _has_video(member: Member) -> bool:
    path = member.folder / "agent.gif"
    return path.is_file() and path.stat().st_size <= _MAX_VIDEO_BYTES


def _scores(experiment: Experiment) -> Html:
    summary = summary_of(experiment)
    header = ("seed", "state", "last model returns", "95% CI", "episodes", "best", "env steps", "updates", "time")
    rows = [_score_row(row) for row in summary["seeds"]]
    notes = []
    if len(experiment.members) > 1 and experiment.ended:
        notes.append(
            element(
                "p",
                f"Mean {said(summary['mean'])}, interquartile mean {said(summary['iqm'])} of "
                f"{summary['num_ended']} seeds; intervals by {summary['resamples']:,} bootstrap draws over seeds.",
            )
        )
    elif experiment.ended:
        text = "The interval is over the episodes of one model; it says nothing about another seed."
        notes.append(element("p", text, class_="soft"))
    return section("Scores", table(header, rows, numbers=range(2, 9)), *notes)


def _score_row(row: Mapping[str, Any]) -> list[str]:
    def number(name: str) -> str:
        return f"{row[name]:,}" if name in row else "-"

    return [
        "?" if row["seed"] is None else str(row["seed"]),
        row["state"],
        measure(row["eval_value"]) if "eval_value" in row else "-",
        interval(*row["eval_interval"]) if "eval_interval" in row else "-",
        number("episodes"),
        measure(row["best_eval"]) if "best_eval" in row else "-",
        number("env_step"),
        number("train_iter"),
        clock(row["duration_s"]) if "duration_s" in row else "-",
    ]


def _metrics(experiment: Experiment) -> Iterator[Html]:
    found = env_metrics(experiment)
    if not found:
        return
    rows = [(each.name, *(measure(value) for value in each.last)) for each in found]
    names = [f"seed {run.config.get('seed', '?')}" for run in experiment.runs]
    header = ("metric", *(names if len(names) > 1 else ["last evaluation"]))
    figures = [_figure(metric_plot(each, each.name)) for each in found]
    yield section(
        "What the env measures",
        table(header, rows, numbers=range(1, len(header))),
        element("div", joined(figures), class_="two"),
    )


def _evaluations(experiment: Experiment) -> Html:
    parts = []
    for member in experiment.members:
        if member.run is None or not len(member.run.evaluation):
            continue
        shown = _history(member.run.evaluation)
        title = f"seed {member.seed}: {len(member.run.evaluation)} evaluations"
        parts.append(details(title, shown) if len(experiment.members) > 1 else shown)
    return section("Evaluations", *(parts or [element("p", "none yet", class_="soft")]))


def _history(reports: Reports) -> Html:
    columns = (reports.env_step, reports.mean, reports.std, reports.low, reports.high, reports.count)
    rows = [
        (f"{step:,.0f}", measure(mean), measure(std), measure(low), measure(high), f"{count:.0f}")
        for step, mean, std, low, high, count in zip(*columns, strict=True)
    ]
    header = ("env step", "mean return", "std", "lowest", "highest", "episodes")
    return table(header, rows, numbers=range(6))


def _config(experiment: Experiment) -> Html:
    folder = experiment.first.folder
    diff = folder / "config_diff.txt"
    parts: list[Html] = []
    if diff.is_file():
        rows = [_diff_cells(line) for line in diff.read_text(encoding="utf-8").splitlines()[1:]]
        parts.append(element("p", f"{len(rows)} settings are not the defaults.", class_="soft"))
        parts.append(table(("key", "default", "value"), [[element("code", cell) for cell in row] for row in rows]))
    full = folder / "formatted_total_config.py"
    if full.is_file():
        parts.append(details("the whole config", element("pre", full.read_text(encoding="utf-8"))))
    return section("Config", *(parts or [element("p", "the folder holds none", class_="soft")]))


def _diff_cells(line: str) -> list[str]:
    """Return key, default and value of a row, whose columns are two or more spaces apart."""
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    return [*cells[:2], "  ".join(cells[2:])] if len(cells) >= 3 else [*cells, "", ""][:3]


def _reproduce(experiment: Experiment) -> Html:
    plan, folder = experiment.plan, shlex.quote(str(experiment.folder))
    result: Mapping[str, Any] = experiment.ended[0].result if experiment.ended else {}
    command = plan.command if plan is not None else result.get("command")
    mode = plan.mode if plan is not None else result.get("mode", "serial")
    seeds = " ".join(f"-s {each.seed}" for each in experiment.members if each.seed is not None)
    where = experiment.folder if plan is not None else experiment.first.folder
    again = f"ding -m {mode} -c {shlex.quote(str(where / 'total_config.py'))} {seeds}".strip()
    if plan is not None:
        again = " ".join([again, *map(shlex.quote, plan.arguments)])
    lines = [*([f"# what was typed\n{command}\n"] if command else []), f"# the same from the saved config\n{again}"]
    if len(experiment.ended) < len(experiment.members):
        lines.append(f"\n# go on with what has not ended\nding --resume {folder}")
    rows = [(name, result[name]) for name in ("host", "commit") if result.get(name)]
    rows += sorted(dict(result.get("versions") or {}).items())
    made = [table(("where", ""), rows)] if rows else []
    return section("Run it again", element("pre", "\n".join(lines)), *made)


def _logs(experiment: Experiment) -> Iterator[Html]:
    """Yield the last words of seeds that have not ended."""
    if experiment.plan is None:
        return
    shown = []
    for member in experiment.members:
        log = seed_log(experiment.folder, member.seed or 0)
        lines = [] if member.has_ended else last_lines(log, _LOG_LINES)
        if lines:
            shown.append(details(f"seed {member.seed} ({state_of(member)}) says", element("pre", "\n".join(lines))))
    if shown:
        yield section("What has not ended", *shown)
