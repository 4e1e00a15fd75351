"""Run workers beside this process: what a host of workers promises, threads as one host, and what follows from it."""
