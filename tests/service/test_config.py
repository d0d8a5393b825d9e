"""Settings, and the secret that they keep."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.config import REMOVED, Settings, unread


def test_everything_is_in_the_home_folder_unless_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "BROKER_URL", "BLOB_DIR", "SECRET"):
        monkeypatch.delenv(f"POTSTILL_{name}", raising=False)
    settings = Settings(home=tmp_path)
    assert settings.is_sqlite
    assert settings.database_file == tmp_path / "potstill.db"
    assert settings.resolved_blob_dir == tmp_path / "blobs"
    assert settings.queue_dir == tmp_path / "queue"


def test_the_environment_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POTSTILL_DATABASE_URL", "postgresql+psycopg://x/y")
    monkeypatch.setenv("POTSTILL_MAX_CLIENTS", "7")
    settings = Settings()
    assert (settings.is_sqlite, settings.max_clients) == (False, 7)
    monkeypatch.setenv("POTSTILL_MAX_CLIENTS", "0")
    with pytest.raises(ValueError, match="max_clients"):
        Settings()


def test_processes_that_start_together_agree_on_one_secret(tmp_path: Path) -> None:
    start = threading.Barrier(6)

    def read(_: int) -> bytes:
        settings = Settings(home=tmp_path / "home", secret=None)
        start.wait()
        return settings.key

    with ThreadPoolExecutor(6) as pool:
        keys = set(pool.map(read, range(6)))
    assert len(keys) == 1
    assert len(keys.pop()) == 64
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["secret.key"]
    assert (tmp_path / "home" / "secret.key").stat().st_mode & 0o077 == 0


def test_a_short_secret_is_refused_and_none_is_shown() -> None:
    with pytest.raises(ValueError, match="16 characters"):
        _ = Settings(secret="short").key
    settings = Settings(secret="a long enough secret")
    assert settings.key == b"a long enough secret"
    assert "long enough" not in repr(settings)


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_what_was_a_setting_is_named_with_what_holds_now() -> None:
    assert not REMOVED.keys() & Settings.model_fields.keys()
    said = unread(
        ["POTSTILL_MAX_ATTEMPTS", "POTSTILL_KEEP_UPDATES_FILE", "POTSTILL_PORT", "POTSTILL_URL", "HOME", "POTSTILL_XYZ"]
    )
    assert said == [
        "nothing reads POTSTILL_KEEP_UPDATES_FILE any more; what holds instead: off; "
        'POTSTILL_RETENTION={"updates": "all"} does the same',
        "nothing reads POTSTILL_MAX_ATTEMPTS any more; what holds instead: 5",
        "nothing reads POTSTILL_XYZ; potstill config shows those there are",
    ]


def test_numbers_say_their_unit_and_limits_what_is_answered() -> None:
    for name, field in Settings.model_fields.items():
        if field.annotation in (int, float) and name != "port":
            assert isinstance(field.json_schema_extra, dict) and field.json_schema_extra["unit"], name


def test_a_secret_may_come_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("a secret from a file\n")
    monkeypatch.setenv("POTSTILL_SECRET_FILE", str(tmp_path / "secret"))
    assert Settings(home=tmp_path).key == b"a secret from a file"
    monkeypatch.setenv("POTSTILL_SECRET", "another one, sixteen characters")
    with pytest.raises(ValueError, match="POTSTILL_SECRET and POTSTILL_SECRET_FILE are both set"):
        Settings(home=tmp_path)
    monkeypatch.delenv("POTSTILL_SECRET")
    monkeypatch.setenv("POTSTILL_SECRET_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="POTSTILL_SECRET_FILE"):
        Settings(home=tmp_path)


@pytest.mark.parametrize(
    ("url", "bucket"), [("s3://one", ("one", "")), ("s3://one/", ("one", "")), ("s3://one/a/b/", ("one", "a/b/"))]
)
def test_a_bucket_and_its_prefix(tmp_path: Path, url: str, bucket: tuple[str, str]) -> None:
    assert Settings(home=tmp_path, blob_url=url).bucket == bucket


def test_blobs_are_in_one_place(tmp_path: Path) -> None:
    for wrong in ("http://one", "s3://", "one"):
        with pytest.raises(ValidationError, match="s3://bucket"):
            Settings(home=tmp_path, blob_url=wrong)
    with pytest.raises(ValidationError, match="unset one"):
        Settings(home=tmp_path, blob_url="s3://one", blob_dir=tmp_path)
