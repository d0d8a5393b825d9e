"""The operators that a network's graph may call: the whole list, one row each, as torch's own schemas write them.

A row is the schema of ``torch.ops.aten.<name>.<overload>`` without what is decided where the network runs (device,
layout, generator); ``Tensor!`` is one that the operator writes into. Beside them stand a few functions of whole numbers
(`int.*`), for shapes that hang on the size of the batch, and `getitem`, which takes one of several results.

None of them reads a file, keeps memory that nothing has written, or changes what is outside the network. A new one is
a row here and a case in tests/contract/nn/graphs/test_operators.py.
"""

from collections.abc import Mapping

from contract.networks.schemas import Operator, read_schema

_ROWS = """
relu(Tensor self) -> Tensor
relu_(Tensor! self) -> Tensor
relu6(Tensor self) -> Tensor
relu6_(Tensor! self) -> Tensor
leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
leaky_relu_(Tensor! self, Scalar negative_slope=0.01) -> Tensor
elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor
elu_(Tensor! self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor
celu(Tensor self, Scalar alpha=1.) -> Tensor
selu(Tensor self) -> Tensor
gelu(Tensor self, *, str approximate="none") -> Tensor
silu(Tensor self) -> Tensor
silu_(Tensor! self) -> Tensor
mish(Tensor self) -> Tensor
hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor
hardtanh_(Tensor! self, Scalar min_val=-1, Scalar max_val=1) -> Tensor
hardswish(Tensor self) -> Tensor
hardswish_(Tensor! self) -> Tensor
hardsigmoid(Tensor self) -> Tensor
sigmoid(Tensor self) -> Tensor
tanh(Tensor self) -> Tensor
softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor
log_sigmoid(Tensor self) -> Tensor
prelu(Tensor self, Tensor weight) -> Tensor
glu(Tensor self, int dim=-1) -> Tensor
softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor
conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], SymInt[1]
    dilation=[1], SymInt groups=1) -> Tensor
conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], SymInt[2]
    dilation=[1, 1], SymInt groups=1) -> Tensor
conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0],
    SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor
conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], str padding="valid", SymInt[1]
    dilation=[1], SymInt groups=1) -> Tensor
conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], str padding="valid",
    SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor
conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0],
    SymInt[1] output_padding=[0], SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor
conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2]
    padding=[0, 0], SymInt[2] output_padding=[0, 0], SymInt groups=1, SymInt[2] dilation=[1, 1]) -> Tensor
linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
matmul(Tensor self, Tensor other) -> Tensor
mm(Tensor self, Tensor mat2) -> Tensor
bmm(Tensor self, Tensor mat2) -> Tensor
mv(Tensor self, Tensor vec) -> Tensor
addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor
batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training,
    float momentum, float eps, bool cudnn_enabled) -> Tensor
layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool
    cudnn_enable=True) -> Tensor
group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool
    cudnn_enabled=True) -> Tensor
instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool
    use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor
rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor
_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor
max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], bool
    ceil_mode=False) -> Tensor
max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool
    ceil_mode=False) -> Tensor
max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool
    ceil_mode=False) -> Tensor
avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False, bool
    count_include_pad=True) -> Tensor
avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool
    count_include_pad=True, int? divisor_override=None) -> Tensor
avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool
    count_include_pad=True, int? divisor_override=None) -> Tensor
adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor
adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor
adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor
adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)
upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor
upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor
pixel_shuffle(Tensor self, int upscale_factor) -> Tensor
pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor
channel_shuffle(Tensor self, SymInt groups) -> Tensor
pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor
constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor
dropout(Tensor input, float p, bool train) -> Tensor
feature_dropout(Tensor input, float p, bool train) -> Tensor
alpha_dropout(Tensor input, float p, bool train) -> Tensor
bernoulli_.float(Tensor! self, float p=0.5) -> Tensor
rand_like(Tensor self, *, ScalarType? dtype=None, MemoryFormat? memory_format=None) -> Tensor
randn_like(Tensor self, *, ScalarType? dtype=None, MemoryFormat? memory_format=None) -> Tensor
rand(SymInt[] size, *, ScalarType? dtype=None) -> Tensor
embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) ->
    Tensor
lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train,
    bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)
gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool
    bidirectional, bool batch_first) -> (Tensor, Tensor)
rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train,
    bool bidirectional, bool batch_first) -> (Tensor, Tensor)
rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train,
    bool bidirectional, bool batch_first) -> (Tensor, Tensor)
scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.,
    bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor
add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor
add_.Tensor(Tensor! self, Tensor other, *, Scalar alpha=1) -> Tensor
add_.Scalar(Tensor! self, Scalar other, Scalar alpha=1) -> Tensor
sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor
sub_.Tensor(Tensor! self, Tensor other, *, Scalar alpha=1) -> Tensor
rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor
rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
mul.Tensor(Tensor self, Tensor other) -> Tensor
mul.Scalar(Tensor self, Scalar other) -> Tensor
mul_.Tensor(Tensor! self, Tensor other) -> Tensor
mul_.Scalar(Tensor! self, Scalar other) -> Tensor
div.Tensor(Tensor self, Tensor other) -> Tensor
div.Scalar(Tensor self, Scalar other) -> Tensor
div_.Tensor(Tensor! self, Tensor other) -> Tensor
div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor
floor_divide(Tensor self, Tensor other) -> Tensor
remainder.Scalar(Tensor self, Scalar other) -> Tensor
pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor
pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor
pow.Scalar(Scalar self, Tensor exponent) -> Tensor
neg(Tensor self) -> Tensor
abs(Tensor self) -> Tensor
exp(Tensor self) -> Tensor
log(Tensor self) -> Tensor
log1p(Tensor self) -> Tensor
expm1(Tensor self) -> Tensor
sqrt(Tensor self) -> Tensor
rsqrt(Tensor self) -> Tensor
square(Tensor self) -> Tensor
reciprocal(Tensor self) -> Tensor
sign(Tensor self) -> Tensor
sin(Tensor self) -> Tensor
cos(Tensor self) -> Tensor
erf(Tensor self) -> Tensor
floor(Tensor self) -> Tensor
ceil(Tensor self) -> Tensor
round(Tensor self) -> Tensor
clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor
clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor
clamp_min(Tensor self, Scalar min) -> Tensor
clamp_max(Tensor self, Scalar max) -> Tensor
clamp_(Tensor! self, Scalar? min=None, Scalar? max=None) -> Tensor
minimum(Tensor self, Tensor other) -> Tensor
maximum(Tensor self, Tensor other) -> Tensor
max.other(Tensor self, Tensor other) -> Tensor
min.other(Tensor self, Tensor other) -> Tensor
lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor
lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor
addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor
where.self(Tensor condition, Tensor self, Tensor other) -> Tensor
where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor
where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor
where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor
eq.Scalar(Tensor self, Scalar other) -> Tensor
eq.Tensor(Tensor self, Tensor other) -> Tensor
ne.Scalar(Tensor self, Scalar other) -> Tensor
ne.Tensor(Tensor self, Tensor other) -> Tensor
lt.Scalar(Tensor self, Scalar other) -> Tensor
lt.Tensor(Tensor self, Tensor other) -> Tensor
le.Scalar(Tensor self, Scalar other) -> Tensor
le.Tensor(Tensor self, Tensor other) -> Tensor
gt.Scalar(Tensor self, Scalar other) -> Tensor
gt.Tensor(Tensor self, Tensor other) -> Tensor
ge.Scalar(Tensor self, Scalar other) -> Tensor
ge.Tensor(Tensor self, Tensor other) -> Tensor
logical_not(Tensor self) -> Tensor
logical_and(Tensor self, Tensor other) -> Tensor
logical_or(Tensor self, Tensor other) -> Tensor
bitwise_not(Tensor self) -> Tensor
bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor
bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor
sum(Tensor self, *, ScalarType? dtype=None) -> Tensor
sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
mean(Tensor self, *, ScalarType? dtype=None) -> Tensor
mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor
amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor
max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor
var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor
var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor
std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor
std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor
linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) ->
    Tensor
cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor
var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor,
    Tensor)
view(Tensor self, SymInt[] size) -> Tensor
reshape(Tensor self, SymInt[] shape) -> Tensor
flatten.using_ints(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor
unflatten.int(Tensor self, int dim, SymInt[] sizes) -> Tensor
permute(Tensor self, int[] dims) -> Tensor
transpose.int(Tensor self, int dim0, int dim1) -> Tensor
t(Tensor self) -> Tensor
unsqueeze(Tensor self, int dim) -> Tensor
squeeze.dim(Tensor self, int dim) -> Tensor
squeeze.dims(Tensor self, int[] dim) -> Tensor
squeeze(Tensor self) -> Tensor
expand(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor
expand_as(Tensor self, Tensor other) -> Tensor
repeat(Tensor self, SymInt[] repeats) -> Tensor
repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor
tile(Tensor self, SymInt[] dims) -> Tensor
cat(Tensor[] tensors, int dim=0) -> Tensor
stack(Tensor[] tensors, int dim=0) -> Tensor
chunk(Tensor self, int chunks, int dim=0) -> Tensor[]
split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]
split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]
unbind.int(Tensor self, int dim=0) -> Tensor[]
select.int(Tensor self, int dim, SymInt index) -> Tensor
slice.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor
narrow(Tensor self, int dim, SymInt start, SymInt length) -> Tensor
index_select(Tensor self, int dim, Tensor index) -> Tensor
gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor
index.Tensor(Tensor self, Tensor?[] indices) -> Tensor
roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor
flip(Tensor self, int[] dims) -> Tensor
tril(Tensor self, SymInt diagonal=0) -> Tensor
triu(Tensor self, SymInt diagonal=0) -> Tensor
diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor
movedim.int(Tensor self, int source, int destination) -> Tensor
movedim.intlist(Tensor self, int[] source, int[] destination) -> Tensor
swapaxes(Tensor self, int axis0, int axis1) -> Tensor
contiguous(Tensor self, *, MemoryFormat memory_format=0) -> Tensor
clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor
detach(Tensor self) -> Tensor
alias(Tensor self) -> Tensor
to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None)
    -> Tensor
to.dtype_layout(Tensor self, *, ScalarType? dtype=None, bool non_blocking=False, bool copy=False, MemoryFormat?
    memory_format=None) -> Tensor
type_as(Tensor self, Tensor other) -> Tensor
masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor
masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor
masked_fill_.Scalar(Tensor! self, Tensor mask, Scalar value) -> Tensor
im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor
unfold(Tensor self, int dimension, int size, int step) -> Tensor
mT(Tensor self) -> Tensor
copy_(Tensor! self, Tensor src, bool non_blocking=False) -> Tensor
new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor
new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor
new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor
zeros(SymInt[] size, *, ScalarType? dtype=None) -> Tensor
ones(SymInt[] size, *, ScalarType? dtype=None) -> Tensor
full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor
arange(Scalar end, *, ScalarType? dtype=None) -> Tensor
arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None) -> Tensor
arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None) -> Tensor
linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None) -> Tensor
zeros_like(Tensor self, *, ScalarType? dtype=None, MemoryFormat? memory_format=None) -> Tensor
ones_like(Tensor self, *, ScalarType? dtype=None, MemoryFormat? memory_format=None) -> Tensor
full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, MemoryFormat? memory_format=None) -> Tensor
scalar_tensor(Scalar s, *, ScalarType? dtype=None) -> Tensor
meshgrid(Tensor[] tensors) -> Tensor[]
sym_size.int(Tensor self, int dim) -> SymInt
cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor
"""

_OWN = """
int.add(int self, int other) -> int
int.sub(int self, int other) -> int
int.mul(int self, int other) -> int
int.floordiv(int self, int other) -> int
int.mod(int self, int other) -> int
int.neg(int self) -> int
getitem(Tensors self, int index) -> Tensor
"""


def _read(rows: str, space: str) -> dict[str, Operator]:
    found = (read_schema(row, space) for row in rows.replace("\n    ", " ").split("\n") if row)
    return {each.name: each for each in found}


OPERATORS: Mapping[str, Operator] = _read(_ROWS, "aten.") | _read(_OWN, "")
"""By the name that a node calls them by, such as `aten.conv2d.default`."""
