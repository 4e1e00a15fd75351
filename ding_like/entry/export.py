"""Write a trained agent as one file for other programs: `ding export EXP --to onnx`."""

from __future__ import annotations

import click

from ding_like.entry.options import IMPORT_OPTION, OnceCommand, echo

_EPILOG = """\b
Examples:
  ding export my_exp --to torchscript
  ding export my_exp --to onnx -o agent.onnx --ckpt last
"""


@click.command("export", cls=OnceCommand, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiment", metavar="EXP")
@click.option("--to", "form", type=click.Choice(["torchscript", "onnx"]), required=True, help="Which kind of file.")
@click.option("-o", "--out", metavar="FILE", help="Where to write it. [EXP/agent.pt or EXP/agent.onnx]")
@click.option("--ckpt", default="best", metavar="CKPT", help="best, last, or a file. [best]")
@IMPORT_OPTION
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def command(experiment: str, form: str, out: str | None, ckpt: str, import_names: tuple[str, ...], debug: bool) -> None:
    """Write a trained agent as one file, from observations to actions, and check it against the agent.

    The file needs neither ding_like nor the env; what it takes and gives is told in it.
    """
    from ding_like.agent.export import export

    done = export(experiment, to=form, out=out, which=ckpt, import_names=import_names)  # type: ignore[arg-type]  # click has checked it
    told = done.metadata
    lines = [f"{kind:<9} {_ports(told[kind])}" for kind in ("inputs", "outputs")]
    if told["wrappers_to_apply"]:
        lines.append(f"apply     {', '.join(str(each['type']) for each in told['wrappers_to_apply'])} to observations")
    checked = [f"{done.drawn.num_actions} actions on random observations"]
    checked += [f"{done.played.num_actions} on those of the env"] if done.played else []
    largest = max(each.difference for each in (done.drawn, done.played) if each)
    lines.append(f"checked   {', '.join(checked)}; largest difference {largest:.2g}")
    echo("\n".join([*lines, str(done.path)]))


def _ports(ports: list[dict[str, object]]) -> str:
    return "  ".join(f"{port['name']} {port['dtype']} {_shape(port['shape'])}" for port in ports)


def _shape(shape: object) -> str:
    assert isinstance(shape, list), "a port's shape is a list"
    return f"[{', '.join(map(str, shape))}]"
