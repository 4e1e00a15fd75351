"""Start what a run with central inference is made of: proxy, servers and actors, and the turns that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from ding_like.comm.workers.child import ChildThread
from ding_like.comm.workers.failures import FailureLog
from ding_like.comm.workers.supervision import Member, Post, Processes
from ding_like.comm.zmq.keys import SeedKeys, load_seed_keys
from ding_like.comm.zmq.row_server import RowServer
from ding_like.comm.zmq.sockets import EndpointFolder, tcp_endpoint
from ding_like.comm.zmq.weights import Broadcaster
from ding_like.config import FrozenConfig
from ding_like.pipeline.build.driver_end import DriverEnd
from ding_like.pipeline.build.envs import EnvSetting
from ding_like.pipeline.build.factories import SchemeFactories
from ding_like.pipeline.build.serial import SerialParts
from ding_like.pipeline.seed.actor import Actor, ActorPlan
from ding_like.pipeline.seed.proxy_process import InferenceProxy
from ding_like.pipeline.seed.servers import InferenceServer, ServerSettings
from ding_like.pipeline.seed.settings import SeedSettings
from ding_like.pipeline.seed.turns import SeedTurns
from ding_like.pipeline.turns import Turns
