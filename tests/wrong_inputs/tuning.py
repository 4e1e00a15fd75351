"""Studies, trackers and metrics of envs."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import SERIAL, Case

TUNE = "ding tune -c my_config.py --env-step 20"
RIGHT = "ding tune --help"

STUDIES = (
    Case("a study of nothing", TUNE, ("a study needs something to vary", "--param policy.learn.learning_rate=log:1e-5..1e-2"), RIGHT),
    Case("a study without a budget", "ding tune -c my_config.py --param policy.nstep=int:1..3", ("--env-step N", "--train-iter N"), RIGHT),
    Case("a study of an unknown key", f"{TUNE} --param policy.learn.learning_rat=log:1e-4..1e-2", ("policy.learn.learning_rat", "did you mean 'learning_rate'"), RIGHT),
    Case("a range of a key that takes none", f"{TUNE} --param policy.nstep=0.5..1.5", ("policy.nstep", "expected int"), RIGHT),
    Case("a range out of bounds", f"{TUNE} --param policy.learn.learning_rate=float:-1..1", ("policy.learn.learning_rate", "above 0"), RIGHT),
    Case("a range that is none", f"{TUNE} --param policy.nstep=1", ("'1' is no range", "int:LOW..HIGH"), RIGHT),
    Case("a range of an unknown kind", f"{TUNE} --param policy.nstep=integer:1..5", ("unknown kind of range 'integer'", "int:LOW..HIGH"), RIGHT),
    Case("a range upside down", f"{TUNE} --param policy.nstep=int:5..1", ("give the smaller number first",), RIGHT),
    Case("a key both set and varied", f"{TUNE} --param policy.nstep=int:1..3 policy.nstep=2", ("policy.nstep", "both set and varied"), RIGHT),
    Case("no trials", f"{TUNE} --param policy.nstep=int:1..3 --trials 0", ("--trials is 0", "from 1"), RIGHT),
    Case("no study to go on with", "ding tune --resume my_exp", ("'my_exp' is no folder of a study", "study.json"), RIGHT),
)  # fmt: skip

TRACKERS = (
    Case("an unknown tracker", f"{SERIAL} trackers.wanb.project=x", ("trackers.wanb", "wandb"), SERIAL),
    Case("an unknown key of a tracker", f"{SERIAL} trackers.wandb.projct=x", ("trackers.wandb.projct", "did you mean 'project'"), SERIAL),
    Case("a mode that a tracker does not have", f"{SERIAL} trackers.wandb.mode=off", ("trackers.wandb.mode", "'online' or 'offline'"), SERIAL),
    Case("a tracker that is no section", f"{SERIAL} trackers.wandb=True", ("trackers.wandb", "expected"), SERIAL),
    Case("a metric that every report has", f"{SERIAL} \"env.metrics=['reward_mean']\"", ("'reward_mean', which every report has already",), SERIAL),
    Case("a metric that a run has not", "ding plot my_exp --metric is_sucess", ("no metric 'is_sucess'", "reward_mean"), "ding plot my_exp --metric reward_max", needs_run=True),
)  # fmt: skip
