"""Files that are wrong in one way each: a sound container of values, names, shapes or types that are no model's."""

import math

import numpy as np

from tests.conformance.case import Cases
from tests.conformance.files import (
    Entry,
    Notes,
    Schema,
    arrays,
    changed,
    entries,
    like,
    matrix,
    pack,
    poked,
    replaced,
    vector,
)

CASES = Cases()


@CASES.add("values", named=("{matrix}",))
def one_nan(s: Schema, n: Notes) -> bytes:
    """one NaN in one weight"""
    return poked(s, n, matrix(s), np.nan, 7)


@CASES.add("values", named=("{vector}",))
def one_infinity(s: Schema, n: Notes) -> bytes:
    """one infinity in one bias"""
    return poked(s, n, vector(s), np.inf)


@CASES.add("values", named=("{vector}",))
def last_value_nan(s: Schema, n: Notes) -> bytes:
    """the last value of a bias is NaN"""
    return poked(s, n, vector(s), np.nan, -1)


@CASES.add("values", named=("running_var",))
def negative_variance(s: Schema, n: Notes) -> bytes:
    """a BatchNorm running variance below zero"""
    return poked(s, n, like(s, "running_var"), -0.01)


@CASES.add("keys", 200, 422, named=("module.",))
def prefix_of_data_parallel(s: Schema, n: Notes) -> bytes:
    """every name starts with 'module.'"""
    return pack([Entry(f"module.{e.name}", e.dtype, e.shape, e.data) for e in entries(s)], n)


@CASES.add("keys", 200, 422, named=("_orig_mod.",))
def prefix_of_compile(s: Schema, n: Notes) -> bytes:
    """every name starts with '_orig_mod.'"""
    return pack([Entry(f"_orig_mod.{e.name}", e.dtype, e.shape, e.data) for e in entries(s)], n)


@CASES.add("keys", named=("{matrix}",))
def weight_missing(s: Schema, n: Notes) -> bytes:
    """a weight is missing"""
    return pack([e for e in entries(s) if e.name != matrix(s)], n)


@CASES.add("keys", named=("running_mean",))
def buffer_missing(s: Schema, n: Notes) -> bytes:
    """a BatchNorm buffer is missing"""
    return pack([e for e in entries(s) if e.name != like(s, "running_mean")], n)


@CASES.add("keys", named=("head.extra",))
def tensor_too_many(s: Schema, n: Notes) -> bytes:
    """a tensor that the model does not have"""
    return pack([*entries(s), Entry("head.extra", "F32", (4,), bytes(16))], n)


@CASES.add("keys")
def name_is_a_path(s: Schema, n: Notes) -> bytes:
    """a tensor called ../../../../tmp/pwned"""
    return pack([*entries(s), Entry("../../../../tmp/pwned", "F32", (1,), bytes(4))], n)


@CASES.add("keys")
def name_is_html(s: Schema, n: Notes) -> bytes:
    """a tensor called <img src=x onerror=alert(1)>"""
    return pack([*entries(s), Entry("<img src=x onerror=alert(1)>", "F32", (1,), bytes(4))], n)


@CASES.add("keys")
def no_tensors(s: Schema, n: Notes) -> bytes:
    """a container without a tensor"""
    return pack([], n)


@CASES.add("shapes", named=("{matrix}",))
def flattened(s: Schema, n: Notes) -> bytes:
    """a weight with all its values on one axis"""
    name = matrix(s)
    return replaced(s, n, name, "F32", (math.prod(s[name][1]),), arrays(s, 1)[name].tobytes())


@CASES.add("shapes", named=("{matrix}",))
def broadcastable(s: Schema, n: Notes) -> bytes:
    """a weight with one row, which numpy would spread over all of them"""
    name = matrix(s)
    shape = (1, *s[name][1][1:])
    return replaced(s, n, name, "F32", shape, np.ones(shape, "<f4").tobytes())


@CASES.add("shapes", named=("{vector}",))
def one_value_for_all(s: Schema, n: Notes) -> bytes:
    """a bias with one value"""
    return replaced(s, n, vector(s), "F32", (1,), bytes(4))


@CASES.add("shapes", named=("{last}",))
def other_classes(s: Schema, n: Notes) -> bytes:
    """a head for another number of classes"""
    name = list(s)[-1]
    shape = (s[name][1][0] - 3, *s[name][1][1:])
    return replaced(s, n, name, "F32", shape, bytes(4 * math.prod(shape)))


@CASES.add("shapes", named=("num_batches_tracked",))
def scalar_became_empty(s: Schema, n: Notes) -> bytes:
    """a counter of shape []  comes as [0]"""
    return replaced(s, n, like(s, "num_batches_tracked"), "I64", (0,), b"")


@CASES.add("shapes", 200, 422, named=("num_batches_tracked",))
def scalar_became_vector(s: Schema, n: Notes) -> bytes:
    """a counter of shape [] comes as [1]"""
    return replaced(s, n, like(s, "num_batches_tracked"), "I64", (1,), bytes(8))


@CASES.add("shapes", named=("{matrix}",))
def empty_tensor(s: Schema, n: Notes) -> bytes:
    """a weight without a row"""
    name = matrix(s)
    return replaced(s, n, name, "F32", (0, *s[name][1][1:]), b"")


@CASES.add("dtypes", named=("F24",))
def unknown_dtype(s: Schema, n: Notes) -> bytes:
    """a dtype that does not exist"""
    return changed(s, n, lambda tree: tree[matrix(s)].update(dtype="F24"))


@CASES.add("dtypes", 200, 422, named=("BF16",))
def bfloat16(s: Schema, n: Notes) -> bytes:
    """all floats as bfloat16"""
    made = []
    for e in entries(s):
        upper = np.frombuffer(e.data, "<u2")[1::2].tobytes() if e.dtype == "F32" else e.data
        made.append(Entry(e.name, "BF16" if e.dtype == "F32" else e.dtype, e.shape, upper))
    return pack(made, n)


@CASES.add("dtypes", 200, 422, named=("F8_E4M3",))
def float8(s: Schema, n: Notes) -> bytes:
    """one weight as float8"""
    name = matrix(s)
    return replaced(s, n, name, "F8_E4M3", s[name][1], b"\x38" * math.prod(s[name][1]))


@CASES.add("dtypes", 200, 422, named=("F64",))
def float64(s: Schema, n: Notes) -> bytes:
    """all floats as float64"""
    wide = arrays(s, 1)
    return pack(
        [
            Entry(e.name, "F64", e.shape, wide[e.name].astype("<f8").tobytes()) if e.dtype == "F32" else e
            for e in entries(s)
        ],
        n,
    )


@CASES.add("dtypes", named=("num_batches_tracked",))
def counter_as_float(s: Schema, n: Notes) -> bytes:
    """an integer counter comes as the float 120.5"""
    name = like(s, "num_batches_tracked")
    return replaced(s, n, name, "F32", s[name][1], np.full(s[name][1], 120.5, "<f4").tobytes())
