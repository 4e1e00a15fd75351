"""MuJoCo's locomotion tasks; they need the extra `mujoco`."""
