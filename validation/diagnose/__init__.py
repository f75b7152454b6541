"""Why did it die: reads what a job and its nodes left behind, and names the root cause with its evidence."""
