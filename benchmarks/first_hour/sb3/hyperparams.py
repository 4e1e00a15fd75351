"""What the zoo trains Point-v0 with."""

hyperparams = {
    "Point-v0": dict(
        n_timesteps=8000,
        policy="MlpPolicy",
        n_envs=1,
        learning_rate=1e-3,
        buffer_size=20000,
        learning_starts=500,
        batch_size=64,
        gamma=0.95,
        train_freq=4,
        gradient_steps=2,
        target_update_interval=200,
        exploration_fraction=0.4,
        exploration_final_eps=0.05,
    )
}
