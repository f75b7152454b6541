"""The Pulumi engine: `install` finds or builds it, cli/ and language/ pin what it is built from."""
