"""Report of an experiment: one HTML page that needs no network and no script."""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path

from ding_like import __version__
from ding_like.data.team import RETURN_OF
from ding_like.errors import ConfigError, escape_controls
from ding_like.report.compare import SEED_HEADER, estimate_text, seed_cells, summary_of
from ding_like.report.curve import Plot, plot_agents, plot_experiments, plot_metric, plot_run
from ding_like.report.experiment import Experiment, Member, Run, env_metrics, last_lines, seed_log
from ding_like.report.scores import clock, interval, measure
from ding_like.types import Config
from ding_like.utils.files import write_text

_MAX_VIDEO_BYTES = 8_000_000  # a larger one is left out: a page is to be sent by mail
_LOG_LINES = 12
_STYLE = """
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --ink: #1d2330; --soft: #5b6474; --line: #dfe3ea;
  --accent: #0072b2; --good: #00704f; --warn: #a04b00; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1b2029; --ink: #e6e9ef; --soft: #9aa4b5;
  --line: #313947; --accent: #56b4e9; --good: #3fc797; --warn: #f0a35e; } }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 12px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin-top: 18px; }
.soft, footer, figcaption, th, dt, small { color: var(--soft); font-size: 13px; }
.badge { padding: 1px 10px; border-radius: 999px; font-size: 13px; border: 1px solid currentColor; }
.good { color: var(--good); } .warn { color: var(--warn); } .going, summary { color: var(--accent); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px 20px; }
dd { margin: 0; font-size: 18px; font-weight: 600; overflow-wrap: anywhere; }
small { display: block; font-weight: 400; }
.scroll { overflow: auto; max-height: 620px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
pre { background: var(--page); border-radius: 6px; padding: 10px 12px; overflow: auto; max-height: 420px; }
figure { margin: 0 0 14px; }
img { max-width: 100%; border-radius: 6px; border: 1px solid var(--line); background: #fff; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 14px 24px; }
@media print { section { break-inside: avoid; } details { display: none; } }
"""


class Html(str):
    """Text that is markup already; any other text is escaped."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: str) -> Html:
    """Return an element; an attribute `class_` is class, and one without a value is left out."""
    named = "".join(f' {name.rstrip("_")}="{escape(value)}"' for name, value in attributes.items() if value)
    inner = "".join(str(each) if isinstance(each, Html) else escape(str(each)) for each in content)
    return Html(f"<{tag}{named}>{inner}</{tag}>")


def table(header: Sequence[object], rows: Iterable[Sequence[object]], *, numbers: range = range(0)) -> Html:
    """Return a table that scrolls where there is no room; the columns `numbers` are aligned on the right."""

    def row(tag: str, cells: Sequence[object]) -> Html:
        made = (element(tag, cell, class_="n" if place in numbers else "") for place, cell in enumerate(cells))
        return element("tr", *made)

    body = element("tbody", *(row("td", cells) for cells in rows))
    return element("div", element("table", element("thead", row("th", header)), body), class_="scroll")


def section(title: str, *content: object) -> Html:
    """Return a part of the page."""
    return element("section", element("h2", title), *content)


def details(summary: str, *content: object) -> Html:
    """Return a part that is shown on demand."""
    return element("details", element("summary", summary), *content)


def image(data: bytes, kind: str, caption: str) -> Html:
    """Return a figure whose bytes are in the page; `kind` is its media type."""
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    shown = Html(f'<img src="{escape(source)}" alt="{escape(caption)}">')
    return element("figure", shown, element("figcaption", caption))


def write_page(experiment: Experiment, path: Path, *, reload_s: float | None = None) -> Path:
    """Write the page into a file and return its path; a browser loads it again every `reload_s`."""
    write_text(path, escape_controls(page_of(experiment, reload_s=reload_s)))
    return path


def page_of(experiment: Experiment, *, reload_s: float | None = None) -> str:
    """Return the page: verdict, curves, video, scores, evaluations, config, and how to run it again."""
    title = f"{experiment.policy or 'a policy'} on {experiment.env or 'an env'}"
    summary = summary_of(experiment)
    again = Html("" if reload_s is None else f'<meta http-equiv="refresh" content="{reload_s:.0f}">\n')
    body = [
        _header(experiment, summary, title),
        _curves(experiment),
        *_videos(experiment),
        _scores(summary),
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
        f"{again}"
        f"{element('title', f'{title}: {experiment.name}')}\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{element('main', *body)}\n</body>\n</html>\n"
    )


def _header(experiment: Experiment, summary: Config, title: str) -> Html:
    ended, rows, stop = experiment.ended, summary["seeds"], experiment.first.stop_value
    several = len(experiment.members) > 1
    facts: list[tuple[str, str, str]] = [("experiment", experiment.name, _when(experiment))]
    if several:
        facts.append(("seeds", f"{len(ended)} of {len(rows)} ended", ""))
    if several and ended:
        for name, estimated in (("last models return", summary["mean"]), ("interquartile mean", summary["iqm"])):
            ends = estimated["interval"]
            facts.append((name, measure(estimated["value"]), f"95% CI {interval(*ends)}" if ends else "of one seed"))
    elif ended:
        note = f"95% CI {interval(*rows[0]['eval_interval'])}, {rows[0]['episodes']} fresh episodes"
        facts.append(("last model returns", measure(rows[0]["eval_value"]), note))
    optional: list[tuple[str, list[float], Callable[[float], str], str]] = [
        ("best evaluation", [row["best_eval"] for row in rows if "best_eval" in row], measure, ""),
        ("env steps", [row["env_step"] for row in rows if "env_step" in row], "{:,}".format, "the most of a seed"),
        ("time", [sum(each.result["duration_s"] for each in ended)] if ended else [], clock, "of all seeds together"),
        ("to reach", [] if stop is None else [stop], measure, "stop value of an evaluation"),
    ]
    for name, values, write, note in optional:
        if values:
            facts.append((name, write(max(values)), note if several or name == "to reach" else ""))
    boxes = [element("div", element("dt", name), element("dd", value, element("small", n))) for name, value, n in facts]
    word, look = _verdict(experiment)
    heading = element("h1", title, " ", element("span", word, class_=f"badge {look}"))
    place = element("p", str(experiment.folder.resolve()), class_="soft")
    return element("header", heading, place, element("dl", *boxes))


def _verdict(experiment: Experiment) -> tuple[str, str]:
    """Return the state of the experiment in words, and their class in the style."""
    ended, count, stop = experiment.ended, len(experiment.members), experiment.first.stop_value
    if len(ended) < count:
        return ("not ended" if count == 1 else f"{count - len(ended)} of {count} not ended"), "going"
    solved = sum(stop is not None and each.result["eval_value"] >= stop for each in ended)
    if stop is None or solved == count:
        return ("done" if stop is None else "solved"), "good"
    return ("stop value not reached" if count == 1 else f"{solved} of {count} solved"), "warn"


def _when(experiment: Experiment) -> str:
    last = max((str(each.result.get("finish_time", "")) for each in experiment.ended), default="")
    return f"ended {last}" if last else ""


def _figure(plot: Plot, caption: str) -> Html:
    """Return a plot as a figure; without matplotlib, a line that names what to install."""
    try:
        from ding_like.report.drawing import svg_of
    except ConfigError as error:
        return element("p", f"{caption}: {error}", class_="soft")
    return image(svg_of(plot), "image/svg+xml", caption)


def _curves(experiment: Experiment) -> Html:
    if len(experiment.members) == 1:
        return section("Learning curve", _figure(plot_run(experiment.first), "episode return over env steps"))
    single = [
        details(f"seed {each.seed} alone", _figure(plot_run(each.run), f"episode return of seed {each.seed}"))
        for each in experiment.members
        if each.run
    ]
    return section("Learning curves", _figure(plot_experiments([experiment]), "episode return over env steps"), *single)


def _videos(experiment: Experiment) -> Iterator[Html]:
    """Yield the video of the seed in the middle: the best one would flatter."""
    paths = {each.folder / "agent.gif": each for each in experiment.members}
    filmed = [(path, each) for path, each in paths.items() if path.is_file()]
    filmed = [(path, each) for path, each in filmed if path.stat().st_size <= _MAX_VIDEO_BYTES]
    if not filmed:
        return
    ranked = sorted(filmed, key=lambda pair: float("-inf") if pair[1].score is None else pair[1].score)
    path, shown = ranked[len(ranked) // 2]
    of = f", seed {shown.seed}" if len(experiment.members) > 1 else ""
    caption = f"an episode of the best model{of}; another: ding enjoy {shlex.quote(str(shown.folder))}"
    yield section("Video", image(path.read_bytes(), "image/gif", caption))


def _scores(summary: Config) -> Html:
    note = ""
    if summary["num_seeds"] > 1 and summary["num_ended"]:
        note = (
            f"Mean {estimate_text(summary['mean'])}, interquartile mean {estimate_text(summary['iqm'])} of "
            f"{summary['num_ended']} seeds; intervals by {summary['resamples']:,} bootstrap draws over seeds."
        )
    elif summary["num_ended"]:
        note = "The interval is over the episodes of one model; it is no evidence about another seed."
    header, place = [*SEED_HEADER], SEED_HEADER.index("95% CI") + 1
    header.insert(place, "episodes")
    rows = []
    for row in summary["seeds"]:
        cells = seed_cells(row)
        cells.insert(place, str(row.get("episodes", "-")))
        rows.append(cells)
    return section("Scores", table(header, rows, numbers=range(2, len(header))), element("p", note, class_="soft"))


def _metrics(experiment: Experiment) -> Iterator[Html]:
    rows, figures = [], []
    names = sorted({name for run in experiment.runs for name in env_metrics(run)})
    agents = [name for name in names if name.startswith(RETURN_OF)] if len(experiment.runs) == 1 else []
    if agents:
        figures.append(_figure(plot_agents(experiment.runs[0], agents), "return of each agent"))
    for name in names:
        with suppress(ConfigError):  # a run has none of it yet
            runs = experiment.with_metric(name).runs
            of = f", mean of {len(runs)} seeds" if len(runs) > 1 else ""
            if name not in agents:
                figures.append(_figure(plot_metric([experiment], name), f"{name}{of}"))
            rows.append([name, *(measure(float(run.newest.mean[-1])) for run in runs)])
    if rows:
        seeds = [f"seed {run.config.get('seed', '?')}" for run in experiment.runs]
        header = ["metric", *(seeds if len(seeds) > 1 else ["last evaluation"])]
        shown = table(header, rows, numbers=range(1, len(header)))
        yield section("What the env measures", shown, element("div", *figures, class_="two"))


def _evaluations(experiment: Experiment) -> Html:
    parts = []
    for member in experiment.members:
        if member.run is not None and len(member.run.evaluation):
            shown = _history(member.run)
            title = f"seed {member.seed}: {len(member.run.evaluation)} evaluations"
            parts.append(details(title, shown) if len(experiment.members) > 1 else shown)
    return section("Evaluations", *(parts or [element("p", "none yet", class_="soft")]))


def _history(run: Run) -> Html:
    reports = run.evaluation
    columns = (reports.env_step, reports.mean, reports.std, reports.low, reports.high, reports.count)
    rows = [
        (f"{step:,.0f}", *map(measure, (mean, std, low, high)), f"{count:.0f}")
        for step, mean, std, low, high, count in zip(*columns, strict=True)
    ]
    unit = reports.unit.removesuffix("s")
    return table((unit, "mean return", "std", "lowest", "highest", "episodes"), rows, numbers=range(6))


def _config(experiment: Experiment) -> Html:
    diff, full = (experiment.first.folder / name for name in ("config_diff.txt", "formatted_total_config.py"))
    parts: list[Html] = []
    if diff.is_file():
        rows = [_diff_cells(line) for line in diff.read_text(encoding="utf-8").splitlines()[1:]]
        parts.append(element("p", f"{len(rows)} settings are not the defaults.", class_="soft"))
        parts.append(table(("key", "default", "value"), [[element("code", cell) for cell in row] for row in rows]))
    if full.is_file():
        parts.append(details("the whole config", element("pre", full.read_text(encoding="utf-8"))))
    return section("Config", *(parts or [element("p", "the folder holds none", class_="soft")]))


def _diff_cells(line: str) -> list[str]:
    """Return key, default and value of a row, whose columns are two or more spaces apart."""
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    return [*cells[:2], "  ".join(cells[2:])]


def _reproduce(experiment: Experiment) -> Html:
    plan, folder = experiment.plan, shlex.quote(str(experiment.folder))
    result: Config = experiment.ended[0].result if experiment.ended else {}
    command = plan.command if plan is not None else result.get("command")
    mode = plan.mode if plan is not None else result.get("mode", "serial")
    where = experiment.folder if plan is not None else experiment.first.folder
    seeds = [f"-s {each.seed}" for each in experiment.members if each.seed is not None]
    more = [shlex.quote(word) for word in plan.arguments] if plan is not None else []
    again = " ".join([f"ding -m {mode} -c {shlex.quote(str(where / 'total_config.py'))}", *seeds, *more])
    lines = [*([f"# what was typed\n{command}\n"] if command else []), f"# the same from the saved config\n{again}"]
    if len(experiment.ended) < len(experiment.members):
        lines.append(f"\n# go on with what has not ended\nding --resume {folder}")
    rows = [(name, result[name]) for name in ("host", "commit") if result.get(name)]
    rows += sorted(dict(result.get("versions") or {}).items())
    return section("Run it again", element("pre", "\n".join(lines)), *([table(("where", ""), rows)] if rows else []))


def _logs(experiment: Experiment) -> Iterator[Html]:
    """Yield the last lines of the logs of seeds that have not ended."""

    def shown(member: Member) -> list[str]:
        return last_lines(seed_log(experiment.folder, member.seed or 0), _LOG_LINES)

    waiting = [each for each in experiment.members if experiment.plan is not None and not each.result and shown(each)]
    parts = [details(f"seed {each.seed} ({each.state})", element("pre", "\n".join(shown(each)))) for each in waiting]
    if parts:
        yield section("What has not ended", *parts)
