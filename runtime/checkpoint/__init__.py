"""Checkpoints that are whole or are not there: how state is written, verified, kept, chosen and read back."""
