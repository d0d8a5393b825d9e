"""Opens the store of blobs that the settings name."""

from service.config import Settings
from service.infra.blob_folder import open_folder
from service.infra.blobs import Blobs


def open_blobs(settings: Settings) -> Blobs:
    """Return a folder's or a bucket's blobs."""
    if settings.bucket is None:
        return open_folder(settings.resolved_blob_dir)
    try:
        from service.infra.blob_bucket import open_bucket
    except ModuleNotFoundError as error:
        raise RuntimeError(f"POTSTILL_BLOB_URL needs {error.name}: pip install 'potstill[s3]'") from error
    return open_bucket(settings)
