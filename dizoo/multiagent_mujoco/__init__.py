"""MuJoCo bodies whose joints are moved by several agents; they need the extra `robotics`."""
