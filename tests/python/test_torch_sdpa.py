# SPDX-License-Identifier: Apache-2.0
"""fascore.torch.scaled_dot_product_attention against PyTorch's math attention in float64, and enable()."""

import itertools
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as functional
from conftest import UNIT, close
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import fascore.torch
from fascore.torch import scaled_dot_product_attention

UNITS = {
    torch.float64: UNIT["f64"],
    torch.float32: UNIT["f32"],
    torch.bfloat16: UNIT["bf16"],
    torch.float16: UNIT["f16"],
}
B, N, L, S, E, EV = 2, 4, 19, 37, 16, 24


def math_attention(*args, **keywords):
    with sdpa_kernel(SDPBackend.MATH):
        return fascore.torch.original(*args, **keywords)


def tensors(dtype=torch.float32, heads=N, kv_heads=N, lead=(B,), length=L, keys=S):
    torch.manual_seed(0)
    shapes = ((*lead, heads, length, E), (*lead, kv_heads, keys, E), (*lead, kv_heads, keys, EV))
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def compare(inputs, mask=None, **keywords):
    """Output and every gradient against float64; for what the bounds allow see test_operator.compare."""
    dtype = inputs[0].dtype
    ours_in = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    exact_in = [t.detach().double().requires_grad_(t.requires_grad) for t in inputs]
    ours_mask = exact_mask = mask
    if mask is not None and mask.is_floating_point():
        ours_mask = mask.detach().clone().requires_grad_(mask.requires_grad)
        exact_mask = mask.detach().double().requires_grad_(mask.requires_grad)
    ours = scaled_dot_product_attention(*ours_in, ours_mask, **keywords)
    exact = math_attention(*exact_in, exact_mask, **keywords)
    assert ours.dtype == dtype and ours.shape == exact.shape
    unit, terms = UNITS[dtype], 9 * (L + S) if dtype in (torch.float32, torch.float64) else 9
    close(ours, exact, unit, terms)
    weights = torch.randn(exact.shape, dtype=torch.float64)
    weights = weights.to(dtype).double()
    wanted = [t for t in (*ours_in, ours_mask) if t is not None and t.requires_grad]
    against = [t for t in (*exact_in, exact_mask) if t is not None and t.requires_grad]
    got = torch.autograd.grad(ours, wanted, weights.to(dtype))
    want = torch.autograd.grad(exact, against, weights)
    for tensor, gradient, reference in zip(wanted, got, want, strict=True):
        assert gradient.dtype == tensor.dtype and gradient.shape == tensor.shape
        if (
            tensor is ours_mask and tensor.shape[-1] == 1
        ):  # the same for all keys: exactly 0, a sum of as many roundings
            assert gradient.abs().max() <= unit * B * N * L * S
        else:
            close(gradient, reference, unit, terms)
    return ours


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("causal", [False, True])
def test_dtypes(dtype, causal):
    compare(tensors(dtype), is_causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "keys"), [(1, 1), (1, 40), (5, 2), (2, 5), (64, 64), (65, 130)])
def test_lengths_and_top_left_causal(length, keys, causal):
    compare(tensors(length=length, keys=keys), is_causal=causal)


def test_causal_is_top_left():
    # Values are unit vectors: the output is the weights.
    query, key = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4)
    weights = scaled_dot_product_attention(query, key, torch.eye(5)[None, None], is_causal=True)
    assert (weights[0, 0] > 0).int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]


@pytest.mark.parametrize("turn", list(itertools.product((False, True), repeat=3)))
def test_strides_and_no_copies_change_no_bit(turn):
    plain = tensors()
    expected = scaled_dot_product_attention(*plain)
    dy = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, plain, dy)
    views = [t.detach().transpose(1, 2).contiguous().transpose(1, 2) if turned else t.detach()
             for t, turned in zip(plain, turn, strict=True)]  # fmt: skip
    views = [t.requires_grad_() for t in views]
    out = scaled_dot_product_attention(*views)
    assert torch.equal(out, expected)
    # dy of every kind of storage: transposed, and a slice of a wider buffer.
    wide = torch.zeros(*dy.shape[:3], 2 * EV)
    wide[..., ::2] = dy
    for strided in (dy, dy.transpose(1, 2).contiguous().transpose(1, 2), wide[..., ::2]):
        again = torch.autograd.grad(out, views, strided, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(again, gradients, strict=True))


MASK_SHAPES = [
    (L, S),
    (1, 1, L, S),
    (B, 1, L, S),
    (1, N, L, S),
    (B, N, L, S),
    (B, 1, 1, S),
    (1, 1, 1, S),
    (S,),
    (L, 1),
    (1,),
]


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_bool_masks(shape):
    mask = torch.rand(shape) < 0.7
    mask[..., 0] = True
    ours = compare(tensors(), mask)
    float_mask = torch.zeros(shape).masked_fill(~mask, float("-inf"))
    assert torch.equal(ours, scaled_dot_product_attention(*tensors(), float_mask))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_float_masks(shape, gradient):
    compare(tensors(), torch.randn(shape).requires_grad_(gradient))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_float_mask_wider_than_the_inputs(dtype):
    compare(tensors(dtype), torch.randn(1, N, L, S).requires_grad_())


def test_strided_masks():
    mask = torch.randn(S, L).t()
    assert torch.equal(scaled_dot_product_attention(*tensors(), mask),
                       scaled_dot_product_attention(*tensors(), mask.contiguous()))  # fmt: skip
    bits = (torch.rand(L, 2 * S) < 0.7)[:, ::2]
    assert torch.equal(scaled_dot_product_attention(*tensors(), bits),
                       scaled_dot_product_attention(*tensors(), bits.contiguous()))  # fmt: skip


def test_rows_without_a_key():
    for mask in (torch.zeros(L, S, dtype=torch.bool), torch.full((L, S), float("-inf"))):
        inputs = tensors()
        out = scaled_dot_product_attention(*inputs, mask)
        assert not out.any()
        assert not any(gradient.any() for gradient in torch.autograd.grad(out.sum(), inputs))
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[3] = False
    compare(tensors(), mask)


def test_nan_behind_the_mask():
    inputs = [t.detach() for t in tensors()]
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[:, [1, 33]] = False
    expected = scaled_dot_product_attention(*inputs, mask)
    for value in (float("nan"), float("inf")):
        inputs[1][:, :, [1, 33]] = value
        inputs[2][:, :, [1, 33]] = value
        assert torch.equal(scaled_dot_product_attention(*inputs, mask), expected)


def test_only_the_mask_needs_a_gradient():
    query, key, value = (t.detach() for t in tensors())
    mask = torch.randn(1, N, L, S, requires_grad=True)
    scaled_dot_product_attention(query, key, value, mask).square().sum().backward()
    # The gradient of scores is orthogonal to constants: rows sum to 0, up to the rounding of S terms.
    assert mask.grad.sum(-1).abs().max() <= 2.0**-24 * S * mask.grad.abs().max() * 4


@pytest.mark.parametrize("wanted", [w for w in itertools.product((False, True), repeat=3) if any(w)])
def test_only_needed_gradients(wanted):
    inputs = tensors()
    expected = torch.autograd.grad(scaled_dot_product_attention(*inputs).sum(), inputs)
    inputs = [t.detach().requires_grad_(need) for t, need in zip(inputs, wanted, strict=True)]
    scaled_dot_product_attention(*inputs).sum().backward()
    for tensor, reference, need in zip(inputs, expected, wanted, strict=True):
        assert torch.equal(tensor.grad, reference) if need else tensor.grad is None


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads(kv_heads):
    compare(tensors(kv_heads=kv_heads), enable_gqa=True)
    compare(tensors(kv_heads=kv_heads), enable_gqa=True, is_causal=True)


def test_heads_by_pytorchs_rules():
    compare(tensors(kv_heads=1))  # one head broadcasts
    query, key, value = tensors(kv_heads=2)
    with pytest.raises(RuntimeError, match="4, 2, 2 heads"):
        scaled_dot_product_attention(query, key, value)
    with pytest.raises(RuntimeError, match="multiple"):
        scaled_dot_product_attention(query[:, :3], key, value, enable_gqa=True)
    expanded = [t.detach()[:, :1].expand(-1, N, -1, -1) for t in (key, value)]
    one = [t[:, :1].contiguous().requires_grad_() for t in expanded]
    out = scaled_dot_product_attention(query, *(t.expand(-1, N, -1, -1) for t in one))
    exact = math_attention(query, *one)
    close(out, exact, UNIT["f32"], 9 * (L + S))
    for a, b in zip(torch.autograd.grad(out.sum(), one), torch.autograd.grad(exact.sum(), one), strict=True):
        close(a, b, UNIT["f32"], 9 * N * (L + S))
    mixed = (query, key, value[:, :1])
    close(
        scaled_dot_product_attention(*mixed, enable_gqa=True), math_attention(*mixed, enable_gqa=True),
        UNIT["f32"], 9 * (L + S),
    )  # fmt: skip


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3)], ids=str)
def test_leading_axes(lead):
    compare(tensors(lead=lead))
    compare(tensors(lead=lead), torch.randn(L, S).requires_grad_())
    compare(tensors(lead=lead), torch.rand(*lead, 1, L, S) < 0.8)


def test_two_and_three_axes_and_broadcast():
    query, key, value = (t[0, 0].detach() for t in tensors())
    close(scaled_dot_product_attention(query, key, value), math_attention(query, key, value), UNIT["f32"], 9 * (L + S))
    query, key, value = tensors()
    compare([query, key[:1].detach().requires_grad_(), value.detach().requires_grad_()])
    many = [torch.randn(300, length, E) for length in (L, S, S)]
    mask = torch.randn(300, L, S)
    close(scaled_dot_product_attention(*many, mask), math_attention(*many, mask), UNIT["f32"], 9 * (L + S))
    bits = torch.rand(300, 1, S) < 0.7
    close(scaled_dot_product_attention(*many, bits), math_attention(*many, bits), UNIT["f32"], 9 * (L + S))


def test_scale():
    inputs = tensors()
    assert torch.equal(scaled_dot_product_attention(*inputs), scaled_dot_product_attention(*inputs, scale=E**-0.5))
    for scale in (0.0, 1, 0.3):
        compare(inputs, scale=scale)


BIASES = [causal_upper_left(L, S), causal_lower_right(L, S), causal_lower_right(4, 4), causal_lower_right(1, S)]


@pytest.mark.parametrize("bias", BIASES, ids=lambda b: f"{b.variant.name} {b.seq_len_q} {b.seq_len_kv}")
def test_causal_bias_objects(bias):
    ours = scaled_dot_product_attention(*tensors(), bias)
    close(ours, fascore.torch.original(*tensors(torch.float64), bias), UNIT["f32"], 9 * (L + S))


def test_causal_bias_of_other_scores_is_refused():
    query, key, value = tensors()
    for function in (scaled_dot_product_attention, fascore.torch.original):
        with pytest.raises(RuntimeError):
            function(query, key, value, causal_lower_right(L, S - 1))
    with pytest.raises(ValueError, match=rf"^attn_mask: shape \({L}, {S - 1}\), must broadcast"):
        scaled_dot_product_attention(query, key, value, causal_lower_right(L, S - 1))
    with pytest.raises(ValueError, match="^is_causal"):
        scaled_dot_product_attention(query, key, value, causal_lower_right(L, S), is_causal=True)


@pytest.mark.parametrize("size", [16, 800])
@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right], ids=lambda make: make.__name__)
def test_causal_bias_under_enable(make, size):
    # 800 stays with PyTorch, where the bias is recognised by the name that enable() gives away.
    query, key = torch.randn(1, 2, 3, size), torch.randn(1, 2, 5, size)
    early = functional.scaled_dot_product_attention
    method = type(make(3, 5)).__dict__["__torch_function__"]
    expected = early(query, key, key, make(3, 5))
    with fascore.torch.enable():
        for function in (functional.scaled_dot_product_attention, early, fascore.torch.original):
            close(function(query, key, key, make(3, 5)), expected, UNIT["f32"], 9 * (3 + 5))
    assert type(make(3, 5)).__dict__["__torch_function__"] is method
    assert torch.equal(functional.scaled_dot_product_attention(query, key, key, make(3, 5)), expected)


LATE_BIAS = """
import sys, torch
from torch.nn.functional import scaled_dot_product_attention as early
import fascore.torch
assert "torch.nn.attention.bias" not in sys.modules and "torch._dynamo" not in sys.modules
fascore.torch.enable()
from torch.nn.attention.bias import causal_lower_right
query, key = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
enabled = early(query, key, key, causal_lower_right(3, 5))
fascore.torch.disable()
print((enabled - early(query, key, key, causal_lower_right(3, 5))).abs().max().item() < 1e-5)
"""


def test_causal_bias_imported_after_enable():
    assert subprocess.run([sys.executable, "-c", LATE_BIAS], check=True, stdout=subprocess.PIPE).stdout == b"True\n"


def test_refusals():
    query, key, value = tensors()
    for text, call in (
        ("is_causal", lambda: scaled_dot_product_attention(query, key, value, torch.zeros(L, S), is_causal=True)),
        ("dtypes", lambda: scaled_dot_product_attention(query, key.double(), value)),
        ("dropout_p", lambda: scaled_dot_product_attention(query, key, value, dropout_p=1.5)),
        ("attn_mask: shape", lambda: scaled_dot_product_attention(query, key, value, torch.zeros(L, S + 1))),
        ("attn_mask: torch.float16", lambda: scaled_dot_product_attention(query, key, value, torch.zeros(L, S).half())),
        ("query", lambda: scaled_dot_product_attention(query[..., :8], key, value)),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_dropout_follows_the_seed():
    inputs = tensors()

    def run():
        out = scaled_dot_product_attention(*inputs, dropout_p=0.3)
        return out, *torch.autograd.grad(out.sum(), inputs)

    torch.manual_seed(5)
    first = run()
    second = run()
    torch.manual_seed(5)
    third = run()
    assert all(torch.equal(a, b) for a, b in zip(first, third, strict=True))
    assert not torch.equal(first[0], second[0])


def test_dropout_gradient_is_that_of_the_drawn_mask():
    query, key, _ = (t.detach().double().requires_grad_() for t in tensors())
    value = torch.eye(S, dtype=torch.float64).expand(B, N, S, S)
    torch.manual_seed(1)
    kept = scaled_dot_product_attention(query, key, value, dropout_p=0.25)
    exact = torch.softmax(query @ key.transpose(2, 3) * E**-0.5, -1)
    mask = (kept.detach() != 0).double() / 0.75
    close(kept, exact * mask, UNIT["f64"], 9 * (L + S))
    weights = torch.randn_like(kept)
    ours = torch.autograd.grad(kept, (query, key), weights)
    theirs = torch.autograd.grad(exact * mask, (query, key), weights)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, UNIT["f64"], 9 * (L + S))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_statistics(p):
    # Uniform weights over 256 keys, value = identity: the output is keep / (256 (1 - p')), p' = p in steps of 1/256.
    size, heads, seeds = 256, 8, 20
    kept_share = round(256 * (1 - p)) / 256
    query, key = torch.zeros(1, heads, size, 1), torch.zeros(1, heads, size, 1)
    value = torch.eye(size).expand(1, heads, size, size)
    total = torch.zeros(heads, size, size)
    torch.manual_seed(11)
    for _ in range(seeds):
        out = scaled_dot_product_attention(query, key, value, dropout_p=p)[0]
        keep = out > 0
        assert torch.equal(out, keep / (size * kept_share)) or (out - keep / (size * kept_share)).abs().max() < 1e-8
        total += keep
        centred = keep.float() - kept_share
        variance = kept_share * (1 - kept_share)
        # Independent bits: each of these is a mean of about `count` numbers of variance 1 (or 1 after division).
        for product, count in (
            ((centred[:, 1:] * centred[:, :-1]).mean(), heads * size * (size - 1)),
            ((centred[..., 1:] * centred[..., :-1]).mean(), heads * size * (size - 1)),
            ((centred[1:] * centred[:-1]).mean(), (heads - 1) * size * size),
        ):
            assert abs(float(product)) / variance < 4.5 / count**0.5
    for mean, count in (
        (total.mean() / seeds, total.numel() * seeds),
        *((row / seeds, size * size * seeds) for row in total.mean((1, 2))),
    ):
        deviation = (kept_share * (1 - kept_share) / count) ** 0.5
        assert abs(float(mean) - kept_share) < 4.5 * deviation
    assert abs(kept_share - (1 - p)) <= 1 / 512


def test_dropout_one_is_zero():
    inputs = tensors()
    out = scaled_dot_product_attention(*inputs, dropout_p=1.0)
    assert not out.any() and not any(g.any() for g in torch.autograd.grad(out.sum(), inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    inputs = tensors()
    with torch.autocast("cpu", dtype):
        out = scaled_dot_product_attention(*inputs)
        masked = scaled_dot_product_attention(*inputs, torch.randn(L, S))
    assert out.dtype == masked.dtype == dtype
    assert torch.equal(out, scaled_dot_product_attention(*(t.to(dtype) for t in inputs)))
    for gradient in torch.autograd.grad(out.sum(), inputs):
        assert gradient.dtype == torch.float32


def test_enable_and_back():
    original = functional.scaled_dot_product_attention
    inputs = [t.detach() for t in tensors()]
    ours = scaled_dot_product_attention(*inputs)
    with fascore.torch.enable():
        assert functional.scaled_dot_product_attention is not original
        with fascore.torch.enable():
            assert torch.equal(functional.scaled_dot_product_attention(*inputs), ours)
        assert torch.equal(functional.scaled_dot_product_attention(*inputs), ours)
    assert functional.scaled_dot_product_attention is original
    fascore.torch.enable()
    assert torch.equal(functional.scaled_dot_product_attention(*inputs), ours)
    fascore.torch.disable()
    assert functional.scaled_dot_product_attention is original
    fascore.torch.disable()
    assert functional.scaled_dot_product_attention is original


def many_heads(heads, kv_heads, batch=1):
    return [torch.randn(batch, count, 3, 8) for count in (heads, kv_heads, kv_heads)]


STAY = {
    "mask and is_causal": (many_heads(2, 2), {"attn_mask": torch.rand(3, 3) < 2, "is_causal": True}),
    "heads in groups": (many_heads(512, 256), {"enable_gqa": True}),
    "heads of one key": (many_heads(300, 1), {}),
    "heads and batches": (many_heads(257, 257, 257), {}),
    "no columns": ([torch.randn(1, 2, 3, 0), torch.randn(1, 2, 5, 0), torch.randn(1, 2, 5, 4)], {}),
    "no value columns": ([torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 0)], {}),
    "wide": ([torch.randn(1, 1, 3, 800)] * 3, {}),
    "long": ([torch.randn(1, 1, 1, 1), torch.randn(1, 1, (1 << 20) + 1, 1), torch.randn(1, 1, (1 << 20) + 1, 1)], {}),
    "scale": (many_heads(2, 2), {"scale": float("inf")}),
}


@pytest.mark.parametrize("name", STAY)
def test_enable_leaves_to_pytorch_what_fascore_refuses(name):
    inputs, given = STAY[name]
    expected = functional.scaled_dot_product_attention(*inputs, **given)
    assert not fascore.torch.serves(*inputs, **given)
    with fascore.torch.enable():
        assert torch.equal(functional.scaled_dot_product_attention(*inputs, **given), expected) or name == "scale"
    if name != "no value columns":
        with pytest.raises(ValueError):
            scaled_dot_product_attention(*inputs, **given)


@pytest.mark.parametrize("inputs", [many_heads(300, 300), [t[0] for t in many_heads(300, 300, 1)]], ids=["4", "3"])
def test_enable_serves_many_heads_without_groups(inputs):
    assert fascore.torch.serves(*inputs)
    ours = scaled_dot_product_attention(*inputs)
    close(ours, math_attention(*(t.double() for t in inputs)), UNIT["f32"], 9 * 6)


def test_enable_leaves_forward_mode_to_pytorch():
    inputs = [t.detach() for t in tensors()]
    with sdpa_kernel(SDPBackend.MATH), torch.autograd.forward_ad.dual_level(), fascore.torch.enable():
        dual = torch.autograd.forward_ad.make_dual(inputs[0], torch.ones_like(inputs[0]))
        out = functional.scaled_dot_product_attention(dual, *inputs[1:])
        assert torch.autograd.forward_ad.unpack_dual(out).tangent is not None


def test_enable_takes_keywords_as_pytorch_does():
    inputs = many_heads(2, 2)
    for function in (fascore.torch.original, functional.scaled_dot_product_attention):
        with fascore.torch.enable(), pytest.raises(TypeError):
            function(*inputs, None, 0.0, False, 0.5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts_can_be_made_while_enabled():
    def model(x: torch.Tensor):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(1, 2, 3, 8)
    with fascore.torch.enable():
        assert torch.equal(torch.jit.script(model)(x), fascore.torch.original(x, x, x))


def test_enable_leaves_what_it_cannot_serve():
    with fascore.torch.enable():
        wide = torch.randn(1, 1, 3, 800)
        assert not fascore.torch.serves(wide, wide, wide)
        assert functional.scaled_dot_product_attention(wide, wide, wide).shape == wide.shape
        meta = torch.empty(1, 1, 3, 8, device="meta")
        assert functional.scaled_dot_product_attention(meta, meta, meta).device.type == "meta"


def train_encoder(steps=5):
    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    head = torch.nn.Linear(32, 11)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    tokens = torch.randn(4, 23, 32)
    target = torch.randint(11, (4, 23))
    padding = torch.zeros(4, 23, dtype=torch.bool)
    padding[1, 17:] = True
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        logits = head(model(tokens, src_key_padding_mask=padding))
        loss = functional.cross_entropy(logits[~padding], target[~padding])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_stock_encoder_trains_the_same():
    theirs = train_encoder()
    calls = 0
    with fascore.torch.enable():
        routed = functional.scaled_dot_product_attention

        def counted(*args, **keywords):
            nonlocal calls
            calls += 1
            return routed(*args, **keywords)

        functional.scaled_dot_product_attention = counted
        ours = train_encoder()
    assert calls == 10
    assert ours[0] > ours[-1]
    # Rounding of f32 (2^-24) through two layers and five steps of AdamW.
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 1e-5
