"""The native Pulumi provider `muster`: what the engine calls to make, read, change and remove parts of a cluster."""
