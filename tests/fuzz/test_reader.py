"""A short turn of the fuzz run; `make fuzz` runs it for as long as you like."""

from tools.fuzz.reader import fuzz


def test_nothing_but_verdicts() -> None:
    seen = fuzz(seed=3, count=1500)
    verdicts = {said for _, said in seen}
    assert {"ok", "container", "tensors", "values"} <= verdicts
    assert all(said == "ok" or said == "values" for bend, said in seen if bend == "nothing")
