"""torch devices by name: which are here, and whether the one that was asked for is."""

import torch


def available() -> list[str]:
    """Return the names of the devices that compute here, the CPU first."""
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def find(name: str | torch.device) -> torch.device:
    """Return the device of that name, after it has computed something.

    Raises:
        ValueError: it is none, or none that is here; the message has the names of those that are.
    """
    here = f"here are {', '.join(available())}"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{str(name)!r} is no torch device; {here}") from error
    if device.type == "meta":
        raise ValueError(f"'meta' is a device that computes nothing; {here}")
    try:
        torch.zeros(1, device=device).add_(1).item()
    except Exception as error:  # each backend has its own
        why = str(error).strip().partition("\n")[0]
        raise ValueError(f"{str(name)!r} is not there ({type(error).__name__}: {why}); {here}") from error
    return device
