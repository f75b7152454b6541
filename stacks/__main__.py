"""What the Pulumi engine runs for this project: see `stacks.program`."""

from stacks.program import program

program()
