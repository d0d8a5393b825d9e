"""Federations and simulations side by side: figures, costs, curves, and the parts in which they differ.

All that is compared is in their reports (`contract.wire.report`), whoever wrote them.
"""
