"""Use what a run trained, without its env: what a run says of its agent, and the agent that acts.

`description` is the file `agent.json` of a run's folder, `wrappers` and `memory` apply env wrappers to observations
alone, `observations` checks these, `weights` loads a checkpoint, `loaded` is the agent that `ding_like.load` returns,
`export` writes it as one file for other programs. The policy server (`pipeline/serve/`) uses the same parts.
"""
