"""What a Prometheus knows of a job's time and nodes: asked, read, and told as lines that rules know."""
