"""The fabric between nodes: who reaches whom, how fast each rail is, and which node, leaf or path is at fault."""
