"""All files of the grid. Making them needs numpy alone: a library that writes sound files cannot write these."""

from tests.conformance import containers, contents

CASES = [*containers.CASES, *contents.CASES]
