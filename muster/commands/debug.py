"""`muster debug env`: the settings that say more of a symptom at the next start, and how to take them back.

`muster debug snapshot`: what `muster diagnose --live` sees of one node, where Slurm cannot be asked to look.
"""

from typing import Annotated

import typer

from muster.commands.nodes import Json
from muster.console import Problem, document, result
from policies.exits import Exit
from validation.diagnose.kinds import Symptom
from validation.diagnose.live.collect import collect, local_job
from validation.diagnose.settings import of
from validation.diagnose.sources import SourceError


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    debug = typer.Typer(help="Learn more of a job: at its next start, or while it runs.", no_args_is_help=True)
    debug.command("env")(env)
    debug.command("snapshot")(snapshot)
    app.add_typer(debug, name="debug")


def env(
    symptom: Annotated[str, typer.Argument(help=f"One of {', '.join(each.value for each in Symptom)}.")],
    undo: Annotated[bool, typer.Option("--undo", help="Print what takes the settings back.")] = False,
    as_json: Json = False,
) -> int:
    """Print shell lines that set what says more of a symptom: eval "$(muster debug env hang)"."""
    if symptom not in set(Symptom):
        raise Problem(
            f"no symptom {symptom!r}", advice=f"one of {', '.join(each.value for each in Symptom)}", exit=Exit.USAGE
        )
    found = of(Symptom(symptom))
    if as_json:
        document([each.model_dump(mode="json") for each in found])
        return Exit.PASS
    result(f"# {symptom}: {Symptom(symptom).words}")
    for each in found:
        if undo:
            result(f"unset {each.variable}")
            continue
        result(f"# {each.why} · cost: {each.cost} · {' '.join(each.sources)}")
        result(f"export {each.variable}={each.value}")
    if not undo:
        result(f'# to take them back: eval "$(muster debug env {symptom} --undo)"')
    return Exit.PASS


def snapshot(
    job: Annotated[str, typer.Option(help="Which job, where ranks of several run here.")] = "",
    native: Annotated[
        bool, typer.Option("--native", help="Calls of C too. Each rank is stopped for it, for up to seconds.")
    ] = False,
) -> int:
    """Print what this node says of a job that runs, as JSON: keep it as muster-snapshot-NODE.json for `diagnose`."""
    unread: list[int] = []
    try:
        found = collect(local_job(job, unread=unread), native, unread=unread)
    except SourceError as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    document(found.model_dump(mode="json"))
    return Exit.PASS
