"""Write the tables of the page Settings, from the comments beside the defaults in the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ding_like.config.explain import Explained, all_settings, explain

_TITLES = {
    "": "A run",
    "env": "Environments",
    "env_manager": "Env managers",
    "policy": "Policies",
    "collector": "Collectors",
    "evaluator": "Evaluators",
    "learner": "Learner and hooks",
    "replay_buffer": "Replay buffers",
    "league": "Leagues",
    "reward_model": "Reward models",
    "player": "Players of a league",
    "commander": "Commanders of parallel runs",
    "tracker": "Trackers",
}


def tables() -> str:
    """Return tables for each part of a run, in Markdown: keys that all of its types have, and keys of some."""
    settings = all_settings()
    entries, lines = explain(settings), []
    for part in dict.fromkeys(setting.part for setting in settings):
        names = {setting.type_name for setting in settings if setting.part == part}
        own = [entry for entry in entries if entry.part == part]
        common = [entry for entry in own if len(entry.of) == len(names)]
        special = [entry for entry in own if common and entry not in common]
        lines += [f"## {_TITLES[part]}", "", *_table(common or own)]
        if special:
            lines += [f"### {_TITLES[part]}: keys of some", "", *_table(special, with_types=True)]
    return "\n".join(lines)


def _table(entries: Sequence[Explained], *, with_types: bool = False) -> Iterator[str]:
    yield "| key | default | accepts | meaning |" + " of |" * with_types
    yield "|---|---|---|---|" + "---|" * with_types
    for entry in entries:
        defaults = {f"`{text}`": names for text, names in entry.defaults.items()}
        cells = [
            f"`{entry.path}`",
            _variants(defaults, "; "),
            next(iter(entry.accepts)),
            _variants(entry.meanings, " "),
        ]
        cells += [", ".join(entry.of)] if with_types else []
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
    yield ""


def _variants(texts: Mapping[str, Sequence[str]], separator: str) -> str:
    """Return the commonest text, and the others behind the names of their types."""
    first, *others = texts
    return separator.join([first, *(f"*{', '.join(texts[text])}*: {text}" for text in others)])
