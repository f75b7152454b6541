"""What was GPU time spent on: the scheduler's accounting and the runs' journals, as hours, causes and cost."""
