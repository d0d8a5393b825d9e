"""Secure aggregation on a device: secrets, masks, and what is said to the other devices through the service."""


class SittingOut(Exception):
    """This device has no part in the session of a round, or not any more; the message says why."""
