"""What failed, whether anything can be saved, and what to do next."""
