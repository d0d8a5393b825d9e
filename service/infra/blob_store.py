"""Opens the store of blobs that the settings name."""

from service.config import Settings
from service.infra.blob_folder import BlobFolder
from service.infra.blobs import Blobs


def open_blobs(settings: Settings) -> Blobs:
    """Return a folder's or a bucket's blobs."""
    if settings.bucket is None:
        return BlobFolder(settings.resolved_blob_dir)
    try:
        from service.infra.blob_bucket import BlobBucket
    except ModuleNotFoundError as error:
        raise RuntimeError(f"POTSTILL_BLOB_URL needs {error.name}: pip install 'potstill[s3]'") from error
    return BlobBucket(settings)
