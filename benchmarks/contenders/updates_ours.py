"""Our updates: a serial run's buffer and learner with hooks and logs at their defaults, without collecting between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.contenders import updates_work as work  # isort: skip  (pins the threads first)

from ding_like.config import compile_config, deep_merge
from ding_like.pipeline.components import build_serial

_CATEGORICAL = dict(dueling=False, v_min=work.V_MIN, v_max=work.V_MAX, n_atom=work.NUM_ATOMS)
_FRACTIONS = dict(num_quantiles=work.NUM_FRACTIONS, quantile_embedding_size=work.NUM_COSINES)


def _recurrent(burn_in: int, *, lstm_type: str = "pytorch") -> dict[str, Any]:
    return dict(
        # The peer has no priorities.
        priority=False,
        priority_IS_weight=False,
        burnin_step=burn_in,
        learn_unroll_len=work.SEQUENCE_STEPS - burn_in,
        model=dict(
            encoder_hidden_size_list=[work.LSTM_SIZE],
            lstm_hidden_size=work.LSTM_SIZE,
            lstm_type=lstm_type,  # the peer's is torch's
            dueling=False,
        ),
        # As many steps as the others', in rows of whole sequences.
        other=dict(replay_buffer=dict(replay_buffer_size=work.ROWS // work.SEQUENCE_STEPS)),
    )


# What each policy is given beside the settings that all have: the sizes that peers have too.
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": dict(model=dict(dueling=False)),
    "c51": dict(model=_CATEGORICAL),
    "rainbow": dict(
        priority=True,
        priority_IS_weight=True,
        model={**_CATEGORICAL, "dueling": True},
        other=dict(replay_buffer=dict(type="advanced", alpha=work.ALPHA, beta=work.BETA)),
    ),
    "qrdqn": dict(model=dict(dueling=False, num_quantiles=work.NUM_QUANTILES)),
    "iqn": dict(model=_FRACTIONS),
    "fqf": dict(model=_FRACTIONS),
    "r2d2": _recurrent(0),
    "r2d2_burn_in": _recurrent(work.SEQUENCE_STEPS // 2),
    "r2d2_norm_lstm": _recurrent(0, lstm_type="normal"),
}
_RATES = {"fqf": ("learning_rate_quantile", "learning_rate_fraction")}


def configs(name: str, *, backend: str = "auto") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (main_config, create_config) of a policy, of any that learns from a replay buffer."""
    rates = dict.fromkeys(_RATES.get(name, ("learning_rate",)), work.LEARNING_RATE)
    own = {} if backend == "auto" else dict(backend=backend)
    policy: dict[str, Any] = dict(
        nstep=work.NSTEP,
        discount_factor=work.GAMMA,
        model=dict(encoder_hidden_size_list=list(work.HIDDEN), head_layer_num=0),
        learn=dict(
            update_per_collect=1,
            batch_size=work.BATCH_SIZE,
            target_update_freq=work.TARGET_UPDATE_FREQ,
            **rates,
            **own,
        ),
        other=dict(replay_buffer=dict(replay_buffer_size=work.ROWS)),
    )
    main = dict(
        exp_name="bench",
        env=dict(env_id="benchmarks.contenders.fixed_env:FixedLength-v0", collector_env_num=work.NUM_LANES),
        policy=deep_merge(policy, SETTINGS.get(name, {})),
    )
    return main, dict(env=dict(type="gymnasium"), policy=dict(type=name.partition("_")[0]))


def updates(name: str, *, backend: str = "auto") -> Callable[[int], None]:
    """Fill a buffer by collecting, and return what updates the policy this many times."""
    cfg = compile_config(*configs(name, backend=backend))
    parts = build_serial(cfg, seed=0)
    setting = parts.policy.command_mode.get_setting_collect({"envstep": 0})
    while parts.collector.envstep < work.ROWS:
        rows = parts.collector.collect(policy_kwargs=setting)
        parts.replay_buffer.push(rows, cur_collector_envstep=parts.collector.envstep)

    def update(count: int) -> None:
        for _ in range(count):
            parts.learner.train(parts.replay_buffer.sample(work.BATCH_SIZE, parts.learner.train_iter))
            if cfg.policy.priority:
                parts.replay_buffer.update(parts.learner.priority_info)

    return update


if __name__ == "__main__":
    makers = {name: partial(updates, name) for name in SETTINGS}
    by_hand = ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")
    makers |= {f"{name}_autograd": partial(updates, name, backend="autograd") for name in by_hand}
    work.main(makers, ("gymnasium",))
