"""What the pages take from npm is as npm has it, with its licence."""

from pathlib import Path

import pytest

from tools import vendor


def test_vendored_files_are_as_they_were_fetched() -> None:
    assert vendor.faults() == []
    for name, package in vendor.PACKAGES.items():
        folder = vendor.ROOT / package.folder
        assert set(vendor.stated(folder)) == {Path(file).name for file in package.files}
        assert (folder / "VERSION").read_text().startswith(f"{name} ")
        assert "opyright" in (folder / "LICENSE").read_text()


def test_a_changed_or_added_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in vendor.PACKAGES.values():
        (tmp_path / package.folder).mkdir(parents=True)
        for file in (vendor.ROOT / package.folder).iterdir():
            (tmp_path / package.folder / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(vendor, "ROOT", tmp_path)
    assert vendor.faults() == []
    (tmp_path / "service/static/vendor/preact/preact.mjs").write_text("changed")
    (tmp_path / "service/static/vendor/preact/more.js").write_text("added")
    assert [line.split()[0] for line in vendor.faults()] == [
        "service/static/vendor/preact/more.js",
        "service/static/vendor/preact/preact.mjs",
    ]


def test_what_is_not_vendored_is_not_fetched() -> None:
    for argument in ("left-pad@1.0.0", "preact"):
        with pytest.raises(SystemExit, match="the names are preact"):
            vendor.main([argument])
