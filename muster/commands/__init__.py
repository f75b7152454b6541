"""The commands, a file for each thing that people work on. Each has `register(app)`."""
