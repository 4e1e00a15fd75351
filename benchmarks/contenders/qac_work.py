"""The work of the SAC and TD3 benchmarks, the same for all libraries: an update for each env step on Pendulum."""

ENV, NUM_ENVS, EPISODES = "Pendulum-v1", 4, 50
STEPS, RANDOM_STEPS = 5_000, 1_000
HIDDEN, BATCH_SIZE, LEARNING_RATE, GAMMA, TAU = 256, 256, 1e-3, 0.97, 0.005
