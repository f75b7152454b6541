"""The node suite: what a node is, measured on the node itself, one function a fact.

It runs from one file with nothing but Python 3.11 and the standard library beside it (`validation.suite` packs it),
so nothing in here imports pydantic or another room. It states facts; what they must be is said in
`policies/controls/`.
"""
