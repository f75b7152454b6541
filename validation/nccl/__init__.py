"""The NCCL job: collectives over the fabric's rails, swept over sizes, checked exactly, judged on the plateau."""
