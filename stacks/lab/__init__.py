"""The lab substrate: a cluster's networks and machines on one computer, as containers in namespaces of their own."""
