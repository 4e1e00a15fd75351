"""Agents that runs trained, used without their envs: loaded, exported, filmed.

`description` is the file `agent.json` of a run's folder, `wrappers` applies env wrappers to observations alone,
`observations` checks these, `checkpoints` loads weights, `loaded` is the agent that `ding_like.load` returns,
`export` writes it as one file for other programs, `video` films it. The policy server (`serve/`) uses the same parts.
"""
