"""Safetensors files without torch: one reader for checking an upload and for averaging it.

What was checked is what is averaged: the service checks while bytes arrive (`StreamCheck`), the worker opens the same
file with the same parser (`TensorFile`). The library's own reader is not used here because it accepts a repeated key,
wants the whole file before it says anything, and dies with bare KeyErrors on dtypes that numpy does not know.

Format: 8 bytes little-endian header length, a JSON object, then the tensors' bytes, contiguous, in C order.
https://github.com/huggingface/safetensors#format
"""

from contract.tensors.checks import (
    StreamCheck,
    check_file,
    check_values,
    compare,
)
from contract.tensors.files import (
    TensorFile,
    TensorWriter,
    dtype_name,
    sync,
    synced_later,
    write_file,
)
from contract.tensors.header import (
    BUFFERS_KEY,
    DIGESTS_KEY,
    DTYPES,
    FLOATS,
    MAX_HEADER_BYTES,
    MAX_NAME,
    MAX_RANK,
    MAX_TENSORS,
    Array,
    Header,
    TensorError,
    TensorInfo,
    check_size,
    header_length,
    parse_digests,
    parse_header,
)
from contract.tensors.pulse import pulse, watched

__all__ = [
    "Array",
    "BUFFERS_KEY",
    "DIGESTS_KEY",
    "DTYPES",
    "FLOATS",
    "Header",
    "MAX_HEADER_BYTES",
    "MAX_NAME",
    "MAX_RANK",
    "MAX_TENSORS",
    "StreamCheck",
    "TensorError",
    "TensorFile",
    "TensorInfo",
    "TensorWriter",
    "check_file",
    "check_size",
    "check_values",
    "compare",
    "dtype_name",
    "header_length",
    "parse_digests",
    "parse_header",
    "pulse",
    "sync",
    "synced_later",
    "watched",
    "write_file",
]
