"""Errors that begin on this side: arguments, data, state, connection. All names are those of `client_sdk.errors`."""


class PotstillError(Exception):
    """Base of everything the SDK raises."""


class UsageError(PotstillError, ValueError):
    """An argument that cannot work; the message names it and says what to pass instead."""


class DatasetError(PotstillError, ValueError):
    """The data set cannot be used. `field` is ``inputs``, ``labels`` or ``dataset``."""

    def __init__(self, field: str, message: str):
        super().__init__(f"{field}: {message}")
        self.field = field


class ModelMismatch(PotstillError, ValueError):
    """Your module does not have the federation's tensors. `tensors` names those that differ."""

    def __init__(self, message: str, tensors: tuple[str, ...] = ()):
        super().__init__(message)
        self.tensors = tensors


class MissingPackage(PotstillError):
    """The federation's devices run what a package brings that is not installed here; the message names it."""


class PackageFailed(PotstillError):
    """Code of an installed package failed, or returned what it may not; the message names it. Nothing was uploaded."""


class TrainingError(PotstillError):
    """Training cannot go on: the loss or a weight is no longer finite. Nothing was uploaded."""


class SecureRefusal(PotstillError):
    """This device takes no part in a secure round that would show more than a sum, or in which somebody lies."""


class StateError(PotstillError):
    """The state folder is in use by another process, or belongs to another client."""


class FederationEnded(PotstillError):
    """The federation takes no more devices. `state` is ``finished``, ``cancelled`` or ``failed``."""

    def __init__(self, message: str, state: str):
        super().__init__(message)
        self.state = state


class UnexpectedAnswer(PotstillError):
    """The service answered something that this version of the contract does not know."""


class TransportError(PotstillError):
    """No usable answer, in spite of retries: the service is down, or the network is."""


class BrokenUpload(TransportError):
    """The connection was lost while a body was on its way, or before it was answered."""


class UntrustedCertificate(TransportError):
    """Nobody known here vouches for the service's certificate, or it is for another name. Nothing was sent."""


class CorruptDownload(TransportError):
    """The downloaded bytes do not match their digest."""
