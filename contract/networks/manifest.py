"""The tensors of a document's network as a file of weights has them."""

import json
from collections.abc import Iterable

from contract.networks.document import STORED_AS, Tensor
from contract.tensors import BUFFERS_KEY, DTYPES, Header, TensorInfo


def manifest(tensors: Iterable[Tensor]) -> Header:
    """Return the header that a file of the network's state has, as far as names, dtypes and shapes go."""
    infos: dict[str, TensorInfo] = {}
    end, buffers = 0, []
    for tensor in tensors:
        dtype = STORED_AS[tensor.dtype]
        info = TensorInfo(dtype, tuple(tensor.shape), end, end)
        begin, end = end, end + info.numel * DTYPES[dtype].itemsize
        infos[tensor.name] = TensorInfo(dtype, tuple(tensor.shape), begin, end)
        if tensor.kind == "buffer":
            buffers.append(tensor.name)
    return Header(infos, {BUFFERS_KEY: json.dumps(buffers)})
