"""Train from a config in one process, or in several learners that act as one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ding_like.entry.learners import is_first, joined, number_of_learners, opening_line
from ding_like.entry.plan import NO_LIMIT, InputConfig, Plan, RunArguments, SystemInput, check_mode, make_plan
from ding_like.entry.training import TrainingMode
from ding_like.envs import get_vec_env_setting
from ding_like.errors import CommError, ConfigError
from ding_like.pipeline.components import Components, build_serial
from ding_like.pipeline.envs import EnvSetting
from ding_like.pipeline.learners.shares import may_refuse, share_config, share_envs, share_of_batch
from ding_like.pipeline.learners.synced import SyncedLearners, join_policy
from ding_like.policy import Policy
from ding_like.policy.sharing import Share
from ding_like.types import Section
from ding_like.utils.log import shown_as_by_the_command
from ding_like.utils.run_folder import RunFolder

if TYPE_CHECKING:
    import torch


@shown_as_by_the_command()
def serial_pipeline(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    learners: int | None = None,
) -> Policy:
    """Train off-policy until a limit or `env.stop_value` is reached, and return the policy.

    `input_cfg` is a config file or (main_config, create_config). `env_setting` is (env_fn, collector env configs,
    evaluator env configs) in place of the config's env; `model` replaces the policy's. With `dynamic_seed=False` every
    episode of an env starts from the same seed. `overrides` are `section.key=value` strings; `load_path` is a
    checkpoint to start from. `learners` processes, of which this one is the first and starts the others, each run the
    loop with their share and learn as one; below torchrun they are its ranks. Raises ConfigError with every fault of
    the config at once.
    """
    arguments = RunArguments("serial", seed, max_train_iter, max_env_step, dynamic_seed)
    mode = SerialMode.of(
        input_cfg, arguments, learners=learners, env_setting=env_setting, model=model, overrides=overrides,
        exp_name=exp_name, load_path=load_path,
    )  # fmt: skip
    return mode.train().policy


@shown_as_by_the_command()
def serial_pipeline_onpolicy(
    input_cfg: InputConfig,
    seed: int = 0,
    env_setting: EnvSetting | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = NO_LIMIT,
    max_env_step: int = NO_LIMIT,
    dynamic_seed: bool = True,
    *,
    overrides: Sequence[str] = (),
    exp_name: str | None = None,
    load_path: str | None = None,
    learners: int | None = None,
) -> Policy:
    """Train on-policy: every batch is trained on once, by the policy that made it. Otherwise as `serial_pipeline`."""
    arguments = RunArguments("serial_onpolicy", seed, max_train_iter, max_env_step, dynamic_seed)
    mode = SerialMode.of(
        input_cfg, arguments, learners=learners, env_setting=env_setting, model=model, overrides=overrides,
        exp_name=exp_name, load_path=load_path,
    )  # fmt: skip
    return mode.train().policy


class SerialMode(TrainingMode[None]):
    """Serial run: by this process alone, or by several learners that act as one."""

    @classmethod
    def of(
        cls, input_cfg: SystemInput | None, arguments: RunArguments, *, learners: int | None = None, **given: Any
    ) -> SerialMode:
        """Return the planned run with `learners`: by default as many as torchrun has started, or the run had."""
        asked, had = number_of_learners(learners, default=arguments.num_learners), arguments.num_learners
        if input_cfg is None and asked != had:
            raise ConfigError(
                f"{given['exp_name']} is a run of {'one learner' if had == 1 else f'{had} learners'}, each with envs "
                f"and rows of its own: it goes on with as many, not with {asked}."
            )
        return cls(make_plan(input_cfg, arguments._replace(num_learners=asked), renew_dir=is_first(), **given))

    def __init__(self, plan: Plan[None]) -> None:
        check_mode(plan.cfg, plan.arguments.mode)
        super().__init__(plan)

    def lines(self) -> list[str]:
        """Return the line about several learners."""
        num_learners = self.plan.arguments.num_learners
        return [opening_line(self.plan.cfg, num_learners)] if num_learners > 1 else []

    def dry_run(self) -> tuple[list[str], bool]:
        """Return (lines that describe what would run where, True: it fits)."""
        first, *more = super().dry_run()[0]
        return [first, f"collect     in {self.plan.cfg.env.collector_env_num} envs, beside the updates", *more], True

    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Claim the folder, and join the other learners, which are started unless torchrun has started them."""
        if self.group is not None:  # which the first learner has opened
            yield
            return
        if is_first():  # of the ranks of torchrun, one makes the folder and holds it for all
            self.plan = self.plan.claimed(folder)
        with joined(self.plan) as (self.plan, self.group), self._weights_kept():
            yield

    def build(self) -> Components:
        """Return the components of this process: of several learners, with its share."""
        plan, group = self.plan, self.group
        share, env_setting = Share(), plan.env_setting
        if group is not None:
            share = Share(group.rank, group.world_size)
            env_setting = share_envs(env_setting or get_vec_env_setting(plan.cfg.env), share)
        self._parts = build_serial(
            self._own_config,
            seed=plan.arguments.seed,
            env_setting=env_setting,
            model=plan.model,
            dynamic_seed=plan.arguments.dynamic_seed,
            with_buffer=plan.arguments.mode == "serial",
            share=share,
            make_reducer=None if group is None else partial(join_policy, group),
        )
        return self._parts

    @property
    def _own_config(self) -> Any:  # Any: a config
        """Config of this process: of several learners, with its share of envs and rows."""
        return self.plan.cfg if self.group is None else share_config(self.plan.cfg, self.group.world_size)

    def loop_settings(self, parts: Components) -> Section:
        """Return the loop's config; of several learners, with what keeps them in step."""
        cfg = self._own_config
        if self.group is None:
            return {"cfg": cfg}
        peers = SyncedLearners(self.group, parts, may_refuse=may_refuse(cfg))
        return {"cfg": cfg, "peers": peers, "batch_size": share_of_batch(cfg, self.group.world_size)}

    @contextmanager
    def _weights_kept(self) -> Iterator[None]:
        """Save the first learner's weights where another one is lost, and add to the error how to start from them."""
        try:
            yield
        except CommError as error:
            parts = getattr(self, "_parts", None)
            if self.group is None or self.group.rank or parts is None or not parts.learner.train_iter:
                raise
            name = f"iteration_{parts.learner.train_iter}.pth.tar"
            parts.learner.save_checkpoint(name)
            start = shlex.join(["--load-path", str(Path(self.plan.cfg.exp_name) / "ckpt" / name)])
            raise CommError(
                f"{str(error).rstrip('.')}; a new run starts from the weights learned so far with  {start}"
            ) from error
