"""`muster controls` and `muster schema`: what must be true, and what may be declared; the reference of the docs."""

from typing import Annotated

import typer

from muster.commands.nodes import Json
from muster.console import Problem, document, out, table
from policies.catalogue import catalogue_markdown, load_catalogue
from policies.exits import Exit
from policies.reading import PolicyError
from spec.load import schema as spec_schema


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("controls")(controls)
    app.command("schema")(schema)


def controls(
    area: Annotated[str, typer.Argument(help="Only controls whose id begins so, as in gpu.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the whole reference as Markdown.")] = False,
    as_json: Json = False,
) -> int:
    """List what every node must satisfy, why, and how it is repaired."""
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
    else:
        rows = table("control", "severity", "title")
        for control in found:
            rows.add_row(control.id, control.severity.value, control.title)
        out.print(rows)
    return Exit.PASS


def schema() -> int:
    """Print the JSON schema of a cluster spec, for editors."""
    document(spec_schema())
    return Exit.PASS
