"""The command `muster`: joins the rooms, holds no logic of its own."""

import importlib.metadata
import sys
import traceback

import typer
from typer.exceptions import TyperException

from muster.commands import cluster, cost, debug, diagnose, drift, gate, history, network, nodes, plan, reference
from muster.console import Problem, err, readable, refused
from policies.exits import Exit

app = typer.Typer(
    name="muster",
    help="Only nodes that pass muster join the pool.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 pass · 1 fail · 2 usage or configuration · 3 error or unreachable · "
    "4 incomplete coverage · 5 expired or invalid certificate",
)
for commands in (plan, network, cluster, nodes, drift, gate, diagnose, history, debug, cost, reference):
    commands.register(app)

_debug = False


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"muster {importlib.metadata.version('muster')}")
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show a traceback where something breaks."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),  # noqa: ARG001
) -> None:
    """Options of every command."""
    global _debug
    _debug = debug


def main() -> None:
    """Runs a command and ends the process with its exit code: no traceback without `--debug`."""
    try:
        code = app(standalone_mode=False)
    except Problem as problem:
        problem.show()
        _trace()
        code = problem.exit
    except TyperException as error:
        err.print(
            readable(f"{error.format_message()}\n    muster --help lists commands, muster COMMAND --help its options")
        )
        code = Exit.USAGE
    except (typer.Abort, KeyboardInterrupt):
        err.print("interrupted; what was done is kept, run the same command again to go on")
        code = Exit.ERROR
    except OSError as error:
        refused(error).show()
        _trace()
        code = Exit.ERROR
    except Exception as error:
        told = f"{type(error).__name__}: {error}\n    this is a fault in muster; --debug shows where"
        err.print(readable(told, "bold red"))
        _trace()
        code = Exit.ERROR
    sys.exit(int(code or 0))


def _trace() -> None:
    if _debug:
        traceback.print_exc()
