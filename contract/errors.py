"""The exception of a numerical rule, on either side of the wire."""


class RuleError(Exception):
    """A rule that refuses its input.

    Attributes:
        code: stable: no_positive_weight, bad_weight, non_finite, schema_mismatch, out_of_range, bad_option,
            bad_variance, bad_counts, no_steps, no_participants, nothing_collected or too_few_classes.
        detail: what is wrong and what to do, for a person.
    """

    def __init__(self, code: str, detail: str):
        super().__init__(detail)
        self.code = code
        self.detail = detail
