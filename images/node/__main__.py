"""`python -m images.node build|digest|path`."""

import sys

from images import node
from images.command import command

sys.exit(command("images.node", node.build, node.digest, lambda: node.root(node.digest()), sys.argv[1:]))
