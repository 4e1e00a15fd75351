"""List all cases, by sections."""

from __future__ import annotations

from collections.abc import Mapping

from tests.wrong_inputs import commands, configs, envs, experiments, files, library, tuning, use
from tests.wrong_inputs.cases import Case

SECTIONS: Mapping[str, tuple[Case, ...]] = {
    "Keys and values of a config": configs.KEYS,
    "Numbers out of range": configs.NUMBERS,
    "Names of policies, envs and other classes": configs.CLASSES,
    "Config files": files.FILES,
    "The command line": commands.START,
    "Commands for what a run left": commands.AFTER,
    "Several seeds": experiments.SEEDS,
    "Comparisons and reports": experiments.AFTER,
    "Ids of envs, and packages that are not installed": envs.IDS,
    "Wrappers": envs.WRAPPERS,
    "An env of one's own": envs.OWN,
    "Calls from Python": library.CALLS,
    "A policy or a model of one's own": library.OWN,
    "Use of what was trained": use.USE,
    "Studies": tuning.STUDIES,
    "Trackers, and metrics of an env": tuning.TRACKERS,
}
CASES = [case for section in SECTIONS.values() for case in section]
