"""What is wrong with a network's document."""


class NetworkError(ValueError):
    """A document that cannot be taken, in the words of who wrote it: where, what, and the remedy.

    Attributes:
        field: where in the document, with dots between the steps.
        detail: what is wrong and what to do.
    """

    def __init__(self, field: str, detail: str):
        super().__init__(f"{field}: {detail}" if field else detail)
        self.field, self.detail = field, detail
