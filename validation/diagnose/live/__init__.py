"""A job that still runs: what its nodes say of it now, and which rank the others wait for."""
