"""The error of recipes."""


class RecipeError(ValueError):
    """A recipe that cannot be built; `field` names the option at fault."""

    def __init__(self, field_name: str, message: str):
        super().__init__(message)
        self.field = field_name
