"""`muster debug env`: the settings that say more of a symptom at the next start, and how to take them back."""

from typing import Annotated

import typer

from muster.commands.nodes import Json
from muster.console import Problem, document, result
from policies.exits import Exit
from validation.diagnose.kinds import Symptom
from validation.diagnose.settings import of


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    debug = typer.Typer(help="Learn more of a symptom at the next start.", no_args_is_help=True)
    debug.command("env")(env)
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
