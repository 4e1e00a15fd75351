"""Use of what was trained: load, export, train."""

# ruff: noqa: E501 - a wrong input a line reads best

from __future__ import annotations

from tests.wrong_inputs.cases import Case

LOAD = 'import ding_like\n\nagent = ding_like.load("my_exp")\n'
ACT = "import numpy as np\n\nprint(agent.act(np.zeros(4, np.float32)))\n"
TRAIN = 'import ding_like\n\nding_like.train("dqn", "CartPole-v1", env_step=20, exp_name="two_lines")\n'

USE = (
    Case("load of a folder that is not there", 'import ding_like\n\nding_like.load("my_ex")\n', ("no folder 'my_ex'", "give the folder of a run"), LOAD + ACT, needs_run=True),
    Case("an observation of another shape", LOAD + ACT.replace("zeros(4", "zeros(5"), ("shape (5,)", "expected shape (4,)"), LOAD + ACT, needs_run=True),
    Case("export of a folder that is not there", "ding export my_ex --to torchscript", ("no folder 'my_ex'", "give the folder of a run"), "ding export my_exp --to torchscript", needs_run=True),
    Case("export to a format that is not", "ding export my_exp --to tensorflow", ("tensorflow", "torchscript", "onnx"), "ding export my_exp --to torchscript", needs_run=True, status=2),
    Case("train with a policy that is not", TRAIN.replace('"dqn"', '"dqnn"'), ("unknown policy 'dqnn'", "did you mean 'dqn'"), TRAIN),
    Case("train in an env that is not", TRAIN.replace("CartPole-v1", "CartPoll-v1"), ("CartPoll-v1", "CartPole-v1"), TRAIN),
    Case("train for less than no steps", TRAIN.replace("env_step=20", "env_step=-5"), ("env_step is -5", "a number from 1"), TRAIN),
    Case("train with a setting misspelt", TRAIN.replace("env_step=20", 'env_step=20, policy=dict(learn=dict(batchsize=8))'), ("policy.learn.batchsize", "did you mean 'batch_size'"), TRAIN),
)  # fmt: skip
