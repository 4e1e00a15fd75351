"""Pictures of a run: its learning curve, and a small GIF of episodes that its policy plays in an env of their own."""

from __future__ import annotations

import copy
import importlib.util
import io
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np

from ding_like.agent.checkpoints import find_checkpoint
from ding_like.data.records import EvalResult, returns_by_agent
from ding_like.data.rows import EvalMode, adapt_eval_mode
from ding_like.envs import EnvFactory, get_vec_env_setting, make_env
from ding_like.envs.game import SoloEnv
from ding_like.envs.team import Team
from ding_like.envs.wrappers.pictures import rendering
from ding_like.errors import ConfigError, DingError, EnvError, describe_error, raised_at
from ding_like.pipeline.envs import EnvSetting, build_single_env
from ding_like.pipeline.statistics import load_agent
from ding_like.policy.di_engine_view import RandomActor
from ding_like.report.curve import plot_run
from ding_like.report.experiment import read_run
from ding_like.report.scores import by_agent, measure
from ding_like.types import Config, EnvManager, Factory, State
from ding_like.utils.files import atomic_write
from ding_like.utils.processes import no_window
from ding_like.utils.registries import pip_line
from ding_like.utils.seeding import make_rng
from ding_like.worker.evaluator import play_episodes

if TYPE_CHECKING:
    from PIL import Image

logger = logging.getLogger(__name__)

AnyEnv = gymnasium.Env[Any, Any]  # what an env observes and takes differs from env to env

_FILMED_STEPS = 1000  # of an episode; of a longer one only its end is added
_MAX_WIDTH = 400  # pixels
# Of a film of one episode; one of several may be up to four times as large.
_MAX_FRAMES = 150
_MAX_BYTES = 400_000
_MAX_S = 12.0
_MAX_FACTOR = 4
_NUM_COLOURS = 64
_PALETTE_FRAMES = 12  # that the colours are chosen from
_MIN_FRAMES = 30  # fewer are not taken for the sake of size
_END_S = 1.0  # how long an episode's last frame stays
_DEFAULT_FPS = 30
# Of the episodes that a typical one is chosen from, which are played without a film.
_NUM_UNSEEN = 10
_MAX_UNSEEN_STEPS = 10_000
_MAX_UNSEEN_S = 5.0  # of the processor, for envs of which so many steps would take long
_MAX_TAKES = 4  # of an env that does not repeat itself


class Filmed(NamedTuple):
    """Content of a film."""

    returns: list[float]  # of its episodes
    median_of: Sequence[float] = ()  # the returns among which that of the one episode is the median; empty: all shown
    metrics: Mapping[str, float] = {}  # of the env, means over the episodes that are shown


def make_video(
    policy: Any,  # an eval mode, ours or any named tuple with DI-engine's fields
    env_fn: Callable[[], AnyEnv],
    path: str | Path,
    *,
    seed: int = 0,
    num_episodes: int | None = None,
    statistics: Sequence[Sequence[State]] = (),
) -> Filmed:
    """Play with an eval mode and write a GIF to `path`: the first `num_episodes` episodes, else a typical one.

    A typical episode is that with the median return of ten, of fewer where ten take over 10,000 env steps or 5 s. It is
    played again to be filmed; of an env that does not repeat an episode after `reset(seed)`, the take of four whose
    return is nearest to the median is kept.

    `env_fn` makes an env that renders RGB arrays, `filmable` one from a config; its wrappers take over `statistics`, as
    `load_agent` returns them. An episode's first 1,000 steps and its end are filmed; of more than 150 frames every n-th
    is kept. The return so far is written above the picture. Raises ConfigError without pillow and EnvError for an env
    that cannot render.
    """
    if importlib.util.find_spec("PIL") is None:
        raise ConfigError(f"a video needs pillow; install it with: {pip_line('viz')}")
    with no_window():
        camera = Camera(env_fn(), num_episodes=num_episodes or 1)
        manager = build_single_env(lambda: camera)
        try:
            manager.launch()
            if any(statistics):
                manager.adopt_wrapper_states(statistics)
            camera.check()
            mode = adapt_eval_mode(policy)
            if num_episodes is None:
                filmed = _film_typical(manager, mode, camera, seed=seed)
            else:
                camera.start()
                rng = make_rng(seed, "video")
                shown = play_episodes(manager, mode, num_episodes, rng=rng)
                filmed = Filmed(shown.returns, metrics=shown.metrics)
        finally:
            manager.close()
    with atomic_write(path) as file:
        file.write(camera.develop())
    return filmed


def _film_typical(manager: EnvManager, mode: EvalMode, camera: Camera, *, seed: int) -> Filmed:
    """Film the episode with the median return; its frames are in the camera afterwards."""

    def play(number: int) -> EvalResult:
        return play_episodes(manager, mode, 1, rng=make_rng(seed, "video", str(number)))

    # By the processor's time: a machine that is busy with other things films the same episode.
    started, steps = time.process_time(), 0
    played: list[float] = []
    while len(played) < _NUM_UNSEEN and steps < _MAX_UNSEEN_STEPS and time.process_time() - started < _MAX_UNSEEN_S:
        result = play(len(played))
        played += result.returns
        steps += result.env_steps
    chosen = sorted(range(len(played)), key=played.__getitem__)[(len(played) - 1) // 2]
    median = played[chosen]
    takes: list[tuple[EvalResult, list[Frame]]] = []
    for _ in range(_MAX_TAKES):
        camera.start()
        takes.append((play(chosen), camera.frames))
        if math.isclose(takes[-1][0].mean, median, rel_tol=1e-6, abs_tol=1e-9):
            break
    nearest, camera.frames = min(takes, key=lambda take: abs(take[0].mean - median))
    return Filmed(nearest.returns, played, nearest.metrics)


def filmable(env_cfg: Config, env_fn: Factory = make_env) -> Callable[[], AnyEnv]:
    """Return a function that makes the env of a config with `render_mode="rgb_array"`.

    `env_fn` is that of an `env_setting`. The function raises EnvError for a class without a render mode.
    """
    cfg = rendering(env_cfg)
    if "replay_path" in cfg:
        cfg.replay_path = None  # where an env records its own episodes
    factory = EnvFactory(cfg, env_fn)

    def make() -> AnyEnv:
        try:
            env: Any = factory()
            if hasattr(env, "num_players"):
                # Games are shown against a random player.
                return SoloEnv(env, RandomActor(env.action_space), render_mode="rgb_array")
            made: AnyEnv = env
            return made
        except (TypeError, ConfigError) as error:
            if isinstance(error, ConfigError) and not isinstance(error.__cause__, TypeError):
                raise
            name = cfg.get("type", getattr(env_fn, "__name__", "the env"))
            raise EnvError(
                f"{name} cannot be made with render_mode='rgb_array': {error} To be shown it needs __init__(self, ..., "
                "render_mode=None) and render() -> uint8 [H, W, 3]."
            ) from error

    return make


class Frame(NamedTuple):
    """Picture of a film, no wider than the film will be: an env's own pixels may take a megabyte each."""

    image: Image.Image
    caption: str
    is_last: bool  # of its episode


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that films the first episodes of an env from `start` on.

    When frames get too many, every other one goes, and from then on half as many are taken.
    """

    def __init__(self, env: AnyEnv, *, num_episodes: int) -> None:
        super().__init__(env)
        self._num_episodes = num_episodes
        self._factor = min(num_episodes, _MAX_FACTOR)
        self._is_on = False
        self._return = 0.0
        self._length = 0  # of the episode, in steps
        self._begin()

    def _begin(self) -> None:
        self.frames: list[Frame] = []
        self._episode = 0
        self._time = 0  # of the film, in steps
        self._every = 1

    def check(self) -> None:
        """Raise EnvError if the env, which has been reset, does not render."""
        self._shoot(is_last=False)

    def start(self) -> None:
        """Film from the next reset on, with a new film."""
        self._begin()
        self._is_on = True

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode of the film."""
        answer = super().reset(**kwargs)
        self._return, self._length = 0.0, 0
        self._film(is_last=False)
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env and take a frame if it is time."""
        answer = super().step(action)
        self._return += float(np.asarray(answer[1]))
        self._length += 1
        is_last = bool(answer[2] or answer[3])
        self._film(is_last=is_last)
        self._episode += is_last
        return answer

    def _film(self, *, is_last: bool) -> None:
        # The env is reset once more after the last episode.
        if not self._is_on or self._episode >= self._num_episodes or (self._length > _FILMED_STEPS and not is_last):
            return
        if self._time % self._every == 0 or is_last:
            self.frames.append(self._shoot(is_last=is_last))
        self._time += 1
        if len(self.frames) >= _MAX_FRAMES * self._factor:
            self.frames = _every_other(self.frames)
            self._every *= 2

    def _shoot(self, *, is_last: bool) -> Frame:
        try:
            pixels: Any = self.env.render()
        except Exception as error:  # render() may raise anything: errors of pygame, OpenGL or a driver
            raise EnvError(f"{self.env} cannot render: {type(error).__name__}: {error}") from error
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 3 or pixels.shape[2] != 3:
            what = f"an array {pixels.shape}" if isinstance(pixels, np.ndarray) else f"{type(pixels).__name__}"
            raise EnvError(f"{self.env} cannot render: render() gave {what}, expected RGB [H, W, 3].")
        from PIL import Image

        number = f"episode {self._episode + 1}   " if self._num_episodes > 1 else ""
        team: Any = self.unwrapped
        agents = f"\n{by_agent(returns_by_agent(team.agent_returns()))}" if isinstance(team, Team) else ""
        return Frame(
            _shrunk(Image.fromarray(pixels.astype(np.uint8)), _MAX_WIDTH),
            f"{number}return {measure(self._return)}{agents}",
            is_last,
        )

    def develop(self) -> bytes:
        """Return the film as a GIF of a few hundred kilobytes, at the env's own frame rate or faster to end soon."""
        frames, width = self.frames, _MAX_WIDTH
        film_s = len(frames) * self._every / float(self.metadata.get("render_fps") or _DEFAULT_FPS)
        while True:
            data = _encode(frames, width, min(film_s, _MAX_S * self._factor) / len(frames))
            excess = len(data) / (_MAX_BYTES * self._factor)
            if excess <= 1 or len(frames) <= _MIN_FRAMES:
                return data
            while excess > 1 and len(frames) > _MIN_FRAMES:
                # Half the frames, each 0.8 x 0.8 as large.
                frames, width, excess = _every_other(frames), int(0.8 * width), excess * 0.32


def _every_other(frames: list[Frame]) -> list[Frame]:
    return [frame for index, frame in enumerate(frames) if index % 2 == 0 or frame.is_last]


def _encode(frames: list[Frame], width: int, frame_s: float) -> bytes:
    from PIL import Image

    # One palette for all keeps still parts still, which is what makes the file small.
    sample = np.linspace(0, len(frames) - 1, min(len(frames), _PALETTE_FRAMES)).astype(int)
    mosaic = np.concatenate([np.asarray(_captioned(frames[index], width)) for index in sample])
    palette = Image.fromarray(mosaic).quantize(_NUM_COLOURS)
    first, *rest = [_captioned(frame, width).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    # Viewers slow a film down that asks for less than 20 ms a frame.
    frame_ms = max(round(1000 * frame_s), 20)
    duration_ms = [round(1000 * _END_S) if frame.is_last else frame_ms for frame in frames]
    data = io.BytesIO()
    first.save(data, "GIF", save_all=True, append_images=rest, duration=duration_ms, loop=0, optimize=False)
    return data.getvalue()


def _shrunk(image: Image.Image, width: int) -> Image.Image:
    from PIL import Image

    if image.width <= width:
        return image
    return image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)


def _captioned(frame: Frame, width: int) -> Image.Image:
    """Return a frame of at most `width` pixels under a strip with its caption, which hides nothing of it."""
    from PIL import Image, ImageDraw, ImageFont

    image = _shrunk(frame.image, width)
    lines = frame.caption.split("\n")
    font_px = max(image.width // 24, 9)
    strip = round((1.2 * len(lines) + 0.4) * font_px)
    captioned = Image.new("RGB", (image.width, image.height + strip), "#222222")
    captioned.paste(image, (0, strip))
    draw = ImageDraw.Draw(captioned)
    for row, line in enumerate(lines):
        font, room = ImageFont.load_default(size=font_px), image.width - font_px
        if (length := font.getlength(line)) > room:
            font = ImageFont.load_default(size=max(font_px * room / length, 7))
        middle = (0.8 + 1.2 * row) * font_px
        draw.text((font_px // 2, middle), line, font=font, fill="white", anchor="lm")
    return captioned


def write_pictures(
    cfg: Any,
    policy: Any,  # a Policy, or anything with an eval mode
    *,
    seed: int,
    env_setting: EnvSetting | None = None,
) -> None:
    """Write `curve.png` and `agent.gif`, one episode of the best checkpoint, into the experiment's folder.

    A picture that cannot be made costs one line in the log and nothing else. The policy is left as it was.
    """
    folder = Path(cfg.exp_name)

    def draw_curve() -> None:
        from ding_like.report.drawing import save_plot  # matplotlib, an extra, is imported as late as can be

        save_plot(plot_run(read_run(folder)), folder / "curve.png")

    def film_best() -> None:
        env_fn, _, env_cfgs = env_setting or get_vec_env_setting(cfg.env, collect=False)
        mode = policy.eval_mode
        with weights_of(mode, find_checkpoint(folder, "best")) as statistics:
            make_video(mode, filmable(env_cfgs[0], env_fn), folder / "agent.gif", seed=seed, statistics=statistics)

    _try("curve", draw_curve)
    _try("video", film_best)


def _try(what: str, make: Callable[[], object]) -> None:
    try:
        make()
    except DingError as error:
        logger.info("no %s: %s", what, str(error).partition("\n")[0])
    except Exception as error:  # env and drawing libraries may raise anything; the run has ended well without a picture
        logger.info("no %s: %s", what, describe_error(error), exc_info=not raised_at(error))


@contextmanager
def weights_of(mode: Any, path: Path) -> Iterator[Sequence[Sequence[State]]]:
    """Load the weights of a checkpoint into a mode while the block runs; yield the statistics saved with them."""
    own = copy.deepcopy(mode.state_dict())
    statistics = load_agent(mode, path)
    try:
        yield statistics
    finally:
        mode.load_state_dict(own)
