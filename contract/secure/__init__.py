"""Secure aggregation: the server learns the sum of a group's updates and no single one of them.

The protocol is Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", Fig. 4,
with the sparse graph of Bell et al. 2020, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", where
there are many devices. What both ends and simulations compute alike is here; `primitives` alone needs `cryptography`,
and the API imports none of it.
"""
