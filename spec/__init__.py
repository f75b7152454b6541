"""The cluster spec: what is declared, what follows from it, and the proofs that refuse a bad design."""
