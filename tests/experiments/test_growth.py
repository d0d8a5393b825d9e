"""What a service takes by the number of devices: measured at its smallest, shown per device, drawn."""

from pathlib import Path

from experiments.growth import Grown, Phase, draw, measured, table


def test_a_round_of_few_devices_is_measured_and_its_model_checked(tmp_path: Path) -> None:
    found = measured(3, tmp_path)
    assert all(phase.seconds > 0 for phase in (found.enrolment, found.upload, found.close))
    assert found.upload.processor > 0
    assert found.memory > 10
    assert found.database > 0.1


def test_figures_are_shown_a_device_and_drawn(tmp_path: Path) -> None:
    """2 s of a processor are 20 ms of each of a hundred."""
    few = Grown(10, Phase(1.0, 0.2), Phase(2.0, 0.4), Phase(0.5, 0.1), 200.0, 1.0, 0.5)
    many = Grown(100, Phase(4.0, 2.0), Phase(9.0, 5.0), Phase(1.0, 0.3), 220.0, 4.2, 0.5)
    assert table([few, many])[3] == "| 100 | 20.0 (40.0) | 50.0 (90.0) | 3.0 (10.0) | 220 | 4.2 | 0.5 |"
    draw(tmp_path / "img" / "x.png", [few, many])
    assert (tmp_path / "img" / "x.png").stat().st_size > 1000
