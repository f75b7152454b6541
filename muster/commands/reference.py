"""`muster controls` and `muster schema`: what must be true, and what may be declared; the reference of the docs."""

import textwrap
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.commands.nodes import Json
from muster.console import Problem, document, out, result, table
from policies.catalogue import catalogue_markdown, load_catalogue
from policies.control import Control
from policies.exits import Exit
from policies.reading import PolicyError
from spec.load import schema as spec_schema
from validation.diagnose.finding import schema as diagnosis_schema
from validation.diagnose.history import schema as history_schema

SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "spec": spec_schema,
    "diagnosis": diagnosis_schema,
    "history": history_schema,
}
"""Of which there is one."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("controls")(controls)
    app.command("schema")(schema)


def controls(
    area: Annotated[str, typer.Argument(help="Only controls whose id begins so, as in gpu.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the whole reference as Markdown.")] = False,
    as_json: Json = False,
) -> int:
    """List what every node must satisfy; of an area also why, and how it is repaired."""
    try:
        catalogue = load_catalogue()
    except PolicyError as error:
        raise Problem(str(error), exit=Exit.USAGE) from None
    found = [control for control in catalogue if control.id.startswith(area)]
    if not found:
        raise Problem(f"no control begins with {area!r}", advice="muster controls lists all", exit=Exit.USAGE)
    if markdown:
        typer.echo(catalogue_markdown(catalogue))
    elif as_json:
        document([control.model_dump(mode="json") for control in found])
    elif area:
        for control in found:
            _print(control)
    else:
        rows = table("control", "severity", "title")
        for control in found:
            rows.add_row(control.id, control.severity.value, control.title)
        out.print(rows)
    return Exit.PASS


READABLE = 80
"""Columns of a line of prose, where the terminal is not narrower."""


def _print(control: Control) -> None:
    """A control in full, as the reference has it."""
    result(Text.assemble((control.id, "bold"), f" · {control.severity.value}"))
    role = f" (role {control.repair.role})" if control.repair.role else ""
    for label, text in {"": control.title, "why": control.why, "repair": f"{control.repair.do}{role}"}.items():
        hang = f"    {label} ".ljust(12) if label else "    "
        result(
            textwrap.fill(
                text,
                min(READABLE, out.width),
                initial_indent=hang,
                subsequent_indent=" " * len(hang),
                break_on_hyphens=False,
                break_long_words=False,
            )
        )


def schema(
    of: Annotated[str, typer.Argument(help=f"One of {', '.join(SCHEMAS)}.")] = "spec",
) -> int:
    """Print the JSON schema of a cluster spec, for editors; or of what muster diagnose or history --json says."""
    if of not in SCHEMAS:
        raise Problem(f"no schema of {of!r}", advice=f"one of {', '.join(SCHEMAS)}", exit=Exit.USAGE)
    document(SCHEMAS[of]())
    return Exit.PASS
