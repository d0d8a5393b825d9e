"""Networks as data: a graph of torch's own operators, kept as JSON, with no code in it. Nothing here needs torch.

`contract.nn.graphs` writes such a document of a module and builds a module of one.
"""
