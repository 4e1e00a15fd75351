"""Components of a run, built from a compiled config: env managers, policies and what is made of these.

env = build_collect_env(cfg, seed=seed)
fitted = fit_policy_config(cfg.policy, env)
policy = build_policy(fitted, seed=seed, cuda=cfg.policy.cuda, modes=["collect", "command"])
collector = build_collector(cfg, env, policy, seed=seed)
"""
