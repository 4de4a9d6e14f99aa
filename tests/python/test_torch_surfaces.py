# SPDX-License-Identifier: Apache-2.0
"""fascore.torch_npu and fascore.flash_attn: signatures to the letter, values against plain formulas in float64."""

import inspect
import math
import subprocess
import sys

import pytest
import torch
from conftest import UNIT, close

import fascore
import fascore.flash_attn
import fascore.torch
import fascore.torch_npu
from fascore.flash_attn import bert_padding, flash_attn_interface

NPU_TAIL = (
    "actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, "
    "softmax_layout='', sink=None"
)
NPU_TAIL_V2 = (
    "actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, pse_type=1, "
    "q_start_idx=None, kv_start_idx=None, softmax_layout='', sink=None"
)
LIMITS = "pre_tockens=2147483647, next_tockens=2147483647"
LIMITS_V2 = "pre_tokens=2147483647, next_tokens=2147483647"
FLASH = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
    "deterministic=False, return_attn_probs=False"
)
SEQLENS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
SDPA = "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False"

# The published lists, in the spelling of inspect.signature without annotations.
SIGNATURES = {
    fascore.torch_npu: {
        "npu_fusion_attention": (
            "query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, "
            f"keep_prob=1.0, {LIMITS}, inner_precise=0, prefix=None, {NPU_TAIL}, dropout_mask=None, seed=0, offset=0"
        ),
        "npu_fusion_attention_grad": (
            "query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, "
            "softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0, keep_prob=1.0, "
            f"{LIMITS}, inner_precise=0, seed=0, offset=0, numels=0, prefix=None, {NPU_TAIL}"
        ),
        "npu_fusion_attention_v2": (
            "query, key, value, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, "
            f"query_rope=None, key_rope=None, scale=1.0, keep_prob=1.0, {LIMITS_V2}, inner_precise=0, prefix=None, "
            f"{NPU_TAIL_V2}, dropout_mask=None, seed=0, offset=0"
        ),
        "npu_fusion_attention_grad_v2": (
            "query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, "
            "softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, query_rope=None, key_rope=None, "
            f"scale_value=1.0, keep_prob=1.0, {LIMITS_V2}, inner_precise=0, seed=0, offset=0, numels=0, prefix=None, "
            f"{NPU_TAIL_V2}"
        ),
        "npu_fusion_attention_v3": (
            "query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, "
            f"keep_prob=1.0, {LIMITS}, inner_precise=0, prefix=None, {NPU_TAIL}"
        ),
        "npu_fusion_attention_grad_v3": (
            "query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, "
            "softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0, keep_prob=1.0, "
            f"{LIMITS}, inner_precise=0, seed=None, offset=None, prefix=None, {NPU_TAIL}"
        ),
    },
    fascore.flash_attn: {
        "flash_attn_func": f"q, k, v, {FLASH}",
        "flash_attn_qkvpacked_func": f"qkv, {FLASH}",
        "flash_attn_kvpacked_func": f"q, kv, {FLASH}",
        "flash_attn_varlen_func": f"q, k, v, {SEQLENS}, {FLASH}, block_table=None",
        "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {FLASH}",
        "flash_attn_varlen_kvpacked_func": f"q, kv, {SEQLENS}, {FLASH}",
        "flash_attn_with_kvcache": (
            "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
            "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
            "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
            "return_softmax_lse=False"
        ),
    },
    fascore.torch: {"scaled_dot_product_attention": f"{SDPA}, *, scale=None, enable_gqa=False"},
    fascore: {
        "flash_attention_score_grad_wrapper": (
            "query, key, value, dy, softmax_max, softmax_sum, attention_out, scale_value, num_heads=8, head_dim=64"
        )
    },
}


@pytest.mark.parametrize(
    ("module", "name"),
    [(m, n) for m, names in SIGNATURES.items() for n in names],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_signatures(module, name):
    signature = inspect.signature(getattr(module, name))
    bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    stated = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    assert stated == f"({SIGNATURES[module][name]})"


# --- torch_npu -------------------------------------------------------------------------------------------------------

B, N1, N2, S1, S2, D = 2, 4, 2, 9, 14, 8


def npu_inputs(layout="BNSD", dtype=torch.float64):
    torch.manual_seed(0)
    tensors = [torch.randn(B, n, s, D, dtype=torch.float64) for n, s in ((N1, S1), (N2, S2), (N2, S2))]
    if layout != "BNSD":
        tensors = [t.transpose(1, 2) for t in tensors]
    if layout in ("BSH", "SBH"):
        tensors = [t.flatten(2) for t in tensors]
    if layout == "SBH":
        tensors = [t.transpose(0, 1) for t in tensors]
    return [t.to(dtype).detach().requires_grad_() for t in tensors]


def npu_formula(query, key, value, scale, pse=None, pse_type=1, hidden=None, keep=None, keep_prob=1.0):
    key, value = (t.repeat_interleave(N1 // N2, 1) for t in (key, value))
    scores = query @ key.transpose(2, 3)
    if pse is not None:
        scores = (scores + pse) * scale if pse_type == 1 else scores * scale + pse
    else:
        scores = scores * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    if keep is not None:
        weights = weights * keep / keep_prob
    return weights @ value


def agree(ours, exact, inputs, terms=9 * (S1 + S2)):
    close(ours, exact, UNIT["f64"], terms)
    weights = torch.randn_like(exact)
    got = torch.autograd.grad((ours * weights).sum(), inputs, retain_graph=True)
    want = torch.autograd.grad((exact * weights).sum(), inputs)
    for a, b in zip(got, want, strict=True):
        close(a, b, UNIT["f64"], terms)
    return weights, got


@pytest.mark.parametrize("layout", ["BNSD", "bsnd", "Bsh", "SBH"])
def test_npu_layouts_and_gradient_by_hand(layout):
    inputs = npu_inputs(layout.upper())
    out, softmax_max, softmax_sum, softmax_out, seed, offset, numels = fascore.torch_npu.npu_fusion_attention(
        *inputs, N1, layout, scale=0.3
    )
    assert softmax_max.shape == softmax_sum.shape == (B, N1, S1, 8)
    assert softmax_out.numel() == 0 and (seed, offset, numels) == (0, 0, 0)
    assert torch.equal(softmax_max, softmax_max[..., :1].expand(-1, -1, -1, 8))
    dy = torch.randn_like(out)
    expected = torch.autograd.grad(out, inputs, dy)
    # Copies 1 to 7 of the statistics are never read.
    softmax_max[..., 1:] = math.nan
    for gradient in (fascore.torch_npu.npu_fusion_attention_grad, fascore.torch_npu.npu_fusion_attention_grad_v2):
        got = gradient(
            *inputs, dy, N1, layout, softmax_max=softmax_max, softmax_sum=softmax_sum, attention_in=out, scale_value=0.3
        )
        assert all(torch.equal(a, b) for a, b in zip(got[:3], expected, strict=True))
        assert all(rest is None for rest in got[3:]) and len(got) == (5 if gradient.__name__.endswith("grad") else 7)


def test_npu_values():
    inputs = npu_inputs()
    hidden = torch.rand(B, 1, S1, S2) < 0.4
    out = fascore.torch_npu.npu_fusion_attention(*inputs, N1, "BNSD", atten_mask=hidden, scale=0.3)[0]
    agree(out, npu_formula(*inputs, 0.3, hidden=hidden), inputs)
    pse = torch.randn(1, N1, S1, S2, dtype=torch.float64, requires_grad=True)
    out = fascore.torch_npu.npu_fusion_attention(*inputs, N1, "BNSD", pse, None, hidden, 0.3)[0]
    agree(out, npu_formula(*inputs, 0.3, pse, hidden=hidden), [*inputs, pse])
    out = fascore.torch_npu.npu_fusion_attention_v2(*inputs, N1, "BNSD", pse=pse, pse_type=0, scale=0.3)[0]
    agree(out, npu_formula(*inputs, 0.3, pse, 0), [*inputs, pse])
    # The default scale is 1, and a mode without a mask is no mode.
    out = fascore.torch_npu.npu_fusion_attention(*inputs, N1, "BNSD", sparse_mode=3)[0]
    agree(out, npu_formula(*inputs, 1.0), inputs)


def test_npu_modes():
    inputs = npu_inputs()
    template = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)
    away = torch.arange(S2)[None] - torch.arange(S1)[:, None]
    shift = S2 - S1
    for mode, hidden in ((2, away > 0), (3, away > shift), (4, (away > shift + 2) | (away < shift - 5))):
        out = fascore.torch_npu.npu_fusion_attention(
            *inputs, N1, "BNSD", atten_mask=template, scale=0.3, sparse_mode=mode, pre_tockens=5, next_tockens=2
        )[0]
        agree(out, npu_formula(*inputs, 0.3, hidden=hidden), inputs)
    prefix = [6, 12]
    hidden = torch.stack([(away > shift) & (torch.arange(S2)[None] >= p) for p in prefix])[:, None]
    compressed = torch.cat([template, torch.arange(2048).expand(1024, 2048) >= 1024])
    out = fascore.torch_npu.npu_fusion_attention(
        *inputs, N1, "BNSD", atten_mask=compressed, scale=0.3, sparse_mode=6, prefix=prefix
    )[0]
    agree(out, npu_formula(*inputs, 0.3, hidden=hidden), inputs)


def test_npu_dropout():
    inputs = npu_inputs()
    torch.manual_seed(4)
    out, smax, ssum, _, seed, offset, numels = fascore.torch_npu.npu_fusion_attention(
        *inputs, N1, "BNSD", scale=0.3, keep_prob=0.9
    )
    assert numels == B * N1 * S1 * S2 and seed != 0
    keep = torch.from_numpy(fascore.dropout_keep((B, N1, S1, S2), seed, offset, 0.9))
    weights, expected = agree(out, npu_formula(*inputs, 0.3, keep=keep.double(), keep_prob=0.9), inputs)
    saved = {"softmax_max": smax, "softmax_sum": ssum, "attention_in": out, "scale_value": 0.3, "keep_prob": 0.9}
    gradient = fascore.torch_npu.npu_fusion_attention_grad
    got = gradient(*inputs, weights, N1, "BNSD", **saved, seed=seed, offset=offset, numels=numels)
    assert all(torch.equal(a, b) for a, b in zip(got[:3], expected, strict=True))
    swapped = gradient(*inputs, weights, N1, "BNSD", **saved, seed=offset, offset=seed, numels=numels)
    assert not torch.equal(swapped[0], expected[0])
    with pytest.raises(RuntimeError, match="numels"):
        gradient(*inputs, weights, N1, "BNSD", **saved, seed=seed, offset=offset, numels=numels + 1)
    torch.manual_seed(4)
    assert fascore.torch_npu.npu_fusion_attention(*inputs, N1, "BNSD", keep_prob=0.9)[4] == seed
    again = fascore.torch_npu.npu_fusion_attention_v2(*inputs, N1, "BNSD", scale=0.3, keep_prob=0.9, seed=seed)
    assert torch.equal(again[0], out) and again[4] == seed
    mask = fascore.torch_npu._npu_dropout_gen_mask(out, (B, N1, S1, S2), 0.1, seed, 0, True, False)
    assert mask.numel() == -(-numels // 128) * 16 + 32
    given = fascore.torch_npu.npu_fusion_attention(*inputs, N1, "BNSD", scale=0.3, keep_prob=0.9, dropout_mask=mask)
    assert torch.equal(given[0], out)


@pytest.mark.parametrize("softmax_layout", ["", "TND"])
def test_npu_packed(softmax_layout):
    ends_q, ends_kv = [4, 4, 9], [5, 8, 12]
    torch.manual_seed(0)
    inputs = [torch.randn(n, h, D, dtype=torch.float64, requires_grad=True) for n, h in ((9, N1), (12, N2), (12, N2))]
    given = {"actual_seq_qlen": ends_q, "actual_seq_kvlen": ends_kv, "softmax_layout": softmax_layout}
    out, smax, ssum, *_ = fascore.torch_npu.npu_fusion_attention(*inputs, N1, "TND", scale=0.3, **given)
    assert smax.shape == (9, N1, 8)
    exact = []
    for (a, b), (c, d) in (((0, 4), (0, 5)), ((4, 9), (8, 12))):
        dense = [
            t[None, s].transpose(1, 2) for t, s in zip(inputs, (slice(a, b), slice(c, d), slice(c, d)), strict=True)
        ]
        exact.append(npu_formula(*dense, 0.3)[0].transpose(0, 1))
    weights, expected = agree(out, torch.cat(exact), inputs)
    got = fascore.torch_npu.npu_fusion_attention_grad(
        *inputs, weights, N1, "TND", softmax_max=smax, softmax_sum=ssum, attention_in=out, scale_value=0.3, **given
    )
    assert all(torch.equal(a, b) for a, b in zip(got[:3], expected, strict=True))
    tensors = {"actual_seq_qlen": torch.tensor(ends_q), "actual_seq_kvlen": torch.tensor(ends_kv)}
    *results, seed, offset = fascore.torch_npu.npu_fusion_attention_v3(
        *inputs, N1, "TND", scale=0.3, softmax_layout=softmax_layout, **tensors
    )
    assert torch.equal(results[0], out) and isinstance(seed, torch.Tensor) and isinstance(offset, torch.Tensor)
    got = fascore.torch_npu.npu_fusion_attention_grad_v3(
        *inputs, weights, N1, "TND", softmax_max=smax, softmax_sum=ssum, attention_in=out, scale_value=0.3,
        softmax_layout=softmax_layout, **tensors,
    )  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(got[:3], expected, strict=True)) and len(got) == 5


def test_npu_sink_and_ropes():
    inputs = npu_inputs(dtype=torch.float32)
    sink = torch.randn(N1, requires_grad=True)
    out, smax, ssum, *_ = fascore.torch_npu.npu_fusion_attention(*inputs, N1, "BNSD", scale=0.3, sink=sink)
    scores = (inputs[0].double() @ inputs[1].double().repeat_interleave(2, 1).transpose(2, 3)) * 0.3
    logits = torch.cat([scores, sink.double().view(1, N1, 1, 1).expand(B, N1, S1, 1)], -1)
    exact = torch.softmax(logits, -1)[..., :-1] @ inputs[2].double().repeat_interleave(2, 1)
    close(out, exact, UNIT["f32"], 9 * (S1 + S2))
    (dsink,) = torch.autograd.grad(out.sum(), sink, retain_graph=True)
    (expected,) = torch.autograd.grad(exact.sum(), sink)
    close(dsink, expected, UNIT["f32"], B * S1 * D * 9)
    by_hand = fascore.torch_npu.npu_fusion_attention_grad(
        *inputs, torch.ones_like(out), N1, "BNSD", softmax_max=smax, softmax_sum=ssum, attention_in=out,
        scale_value=0.3, sink=sink,
    )  # fmt: skip
    assert torch.equal(by_hand[4], dsink) and by_hand[3] is None
    ropes = [torch.randn(B, n, s, 4, requires_grad=True) for n, s in ((N1, S1), (N2, S2))]
    split = fascore.torch_npu.npu_fusion_attention_v2(
        *inputs, N1, "BNSD", scale=0.3, query_rope=ropes[0], key_rope=ropes[1]
    )[0]
    joined = fascore.torch_npu.npu_fusion_attention_v2(
        torch.cat([inputs[0], ropes[0]], -1), torch.cat([inputs[1], ropes[1]], -1), inputs[2], N1, "BNSD", scale=0.3
    )[0]
    close(split, joined.detach(), UNIT["f32"], 9 * (S1 + S2))
    for a, b in zip(
        torch.autograd.grad(split.sum(), [*inputs, *ropes]),
        torch.autograd.grad(joined.sum(), [*inputs, *ropes]),
        strict=True,
    ):
        close(a, b, UNIT["f32"], 9 * (S1 + S2))


def test_npu_refusals():
    inputs = npu_inputs()
    call = fascore.torch_npu.npu_fusion_attention
    for text, given in (
        ("head_num", {"head_num": 0}),
        ("head_num", {"head_num": 3}),
        ("input_layout", {"input_layout": "BDSN"}),
        ("keep_prob", {"keep_prob": 0.0}),
        ("keep_prob", {"keep_prob": 1.1}),
        ("sparse_mode", {"sparse_mode": 7}),
        ("softmax_layout", {"softmax_layout": "TND"}),
        ("actual_seq_qlen", {"input_layout": "TND"}),
    ):
        with pytest.raises(RuntimeError, match=text):
            call(*inputs, **{"head_num": N1, "input_layout": "BNSD", **given})
    with pytest.raises(RuntimeError, match="softmax_max: absent"):
        fascore.torch_npu.npu_fusion_attention_grad(*inputs, inputs[0], N1, "BNSD")


INSTALL = """
import sys, fascore.torch_npu, fascore.flash_attn
assert fascore.torch_npu.install() and fascore.flash_attn.install()
assert fascore.torch_npu.install() and fascore.flash_attn.install()
import torch, torch_npu, flash_attn
from torch_npu import npu_fusion_attention
from flash_attn import flash_attn_func, __version__
from flash_attn.flash_attn_interface import flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input, index_first_axis
q = torch.randn(1, 2, 3, 4, requires_grad=True)
out = torch.ops.npu.npu_fusion_attention(q, q, q, 2, "BNSD", scale=0.5)
out[0].sum().backward()
assert torch.equal(out[0], torch_npu.npu_fusion_attention_v2(q, q, q, 2, "BNSD", scale=0.5)[0])
print(len(out), flash_attn.__version__)
"""


def test_install():
    done = subprocess.run([sys.executable, "-c", INSTALL], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "7 2.8.4\n"


def test_install_gives_way_to_the_real_packages(tmp_path):
    for name in ("torch_npu", "flash_attn"):
        (tmp_path / f"{name}.py").write_text("real = True\n", encoding="utf-8")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fascore.torch_npu, fascore.flash_attn; "
        "assert not fascore.torch_npu.install() and not fascore.flash_attn.install(); "
        "import torch_npu, flash_attn; assert torch_npu.real and flash_attn.real"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# --- flash_attn -----------------------------------------------------------------------------------------------------


def flash_formula(q, k, v, causal=False, window=(-1, -1), softcap=0.0, slopes=None, scale=None):
    """(out, lse) from (B, S, N, D) in float64."""
    q, k, v = (t.double().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, columns = scores.shape[2:]
    away = torch.arange(columns)[None] - torch.arange(rows)[:, None] - (columns - rows)
    if slopes is not None:
        scores = scores - slopes.double().view(-1, slopes.shape[-1], 1, 1) * away.abs()
    left, right = window
    right = 0 if causal else right
    hidden = torch.zeros_like(away, dtype=torch.bool)
    hidden |= (away < -left) if left >= 0 else hidden
    hidden |= (away > right) if right >= 0 else hidden
    scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores, -1)
    lse = torch.where(lse == -math.inf, math.inf, lse)
    return (torch.softmax(scores, -1).nan_to_num(0.0) @ v).transpose(1, 2), lse


def flash_inputs(rows=S1, columns=S2, dtype=torch.float64):
    torch.manual_seed(1)
    return [
        torch.randn(B, s, n, D, dtype=dtype, requires_grad=True) for s, n in ((rows, N1), (columns, N2), (columns, N2))
    ]


FLASH_OPTIONS = {
    "plain": ({}, {}),
    "causal": ({"causal": True}, {"causal": True}),
    "window": ({"window_size": (3, 2)}, {"window": (3, 2)}),
    "left only": ({"window_size": (3, -1)}, {"window": (3, -1)}),
    "wide": ({"window_size": (400, 0)}, {"window": (400, 0)}),
    "causal window": ({"causal": True, "window_size": (3, 9)}, {"window": (3, 0)}),
    "softcap": ({"softcap": 1.5, "causal": True}, {"softcap": 1.5, "causal": True}),
    "scale": ({"softmax_scale": 0.0}, {"scale": 0.0}),
}


@pytest.mark.parametrize("size", [(S1, S2), (S2, S1), (12, 12)], ids=str)
@pytest.mark.parametrize("name", FLASH_OPTIONS)
def test_flash_attn(name, size):
    given, formula = FLASH_OPTIONS[name]
    q, k, v = flash_inputs(*size)
    out, lse, weights = fascore.flash_attn.flash_attn_func(q, k, v, **given, return_attn_probs=True)
    exact, exact_lse = flash_formula(q, k, v, **formula)
    agree(out, exact, (q, k, v))
    assert lse.shape == (B, N1, size[0]) and weights.numel() == 0
    assert torch.equal(lse == math.inf, exact_lse == math.inf)
    close(lse.nan_to_num(posinf=0.0), exact_lse.nan_to_num(posinf=0.0), UNIT["f64"], 9 * S2)
    assert torch.equal(out, fascore.flash_attn.flash_attn_func(q, k, v, **given))
    kv = torch.stack([k, v], 2)
    assert torch.equal(out, fascore.flash_attn.flash_attn_kvpacked_func(q, kv, **given))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(S1, S2), (S2, S1)], ids=str)
def test_flash_attn_alibi(size, causal):
    for slopes in (torch.tensor([0.5, 0.25, 0.1, 0.0]), torch.rand(B, N1)):
        q, k, v = flash_inputs(*size)
        slopes = slopes.clone().requires_grad_()
        out = fascore.flash_attn.flash_attn_func(q, k, v, causal=causal, alibi_slopes=slopes)
        exact, _ = flash_formula(q, k, v, causal=causal, slopes=slopes)
        weights, _ = agree(out, exact, (q, k, v))
        got = torch.autograd.grad((out * weights).sum(), slopes, retain_graph=True)[0]
        want = torch.autograd.grad((flash_formula(q, k, v, causal=causal, slopes=slopes)[0] * weights).sum(), slopes)[0]
        close(got, want, UNIT["f32"], 9)  # slopes and their gradient are f32


def test_flash_attn_qkvpacked():
    torch.manual_seed(2)
    qkv = torch.randn(B, S1, 3, N1, D, dtype=torch.float64, requires_grad=True)
    out = fascore.flash_attn.flash_attn_qkvpacked_func(qkv, causal=True)
    agree(out, flash_formula(*qkv.unbind(2), causal=True)[0], [qkv])
    packed = qkv.flatten(0, 1)
    cu = torch.tensor([0, S1, 2 * S1], dtype=torch.int32)
    flat = fascore.flash_attn.flash_attn_varlen_qkvpacked_func(packed, cu, S1, causal=True)
    assert torch.equal(flat.unflatten(0, (B, S1)), out)


@pytest.mark.parametrize("slopes", [None, (N1,), (3, N1)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attn_varlen(causal, slopes):
    torch.manual_seed(3)
    slopes = None if slopes is None else torch.rand(slopes)
    cu_q, cu_k = torch.tensor([0, 5, 5, 14], dtype=torch.int32), torch.tensor([0, 7, 9, 17], dtype=torch.int32)
    q = torch.randn(14, N1, D, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(17, N2, D, dtype=torch.float64, requires_grad=True) for _ in range(2))
    given = {"causal": causal, "alibi_slopes": slopes}
    out, lse, _ = fascore.flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 9, 8, **given, return_attn_probs=True)
    exact, exact_lse = [], []
    for b in range(3):
        rows, columns = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        mine = slopes if slopes is None or slopes.dim() == 1 else slopes[b]
        piece = flash_formula(q[None, rows], k[None, columns], v[None, columns], causal=causal, slopes=mine)
        exact.append(piece[0][0])
        exact_lse.append(piece[1][0])
    agree(out, torch.cat(exact), (q, k, v))
    assert lse.shape == (N1, 14)
    close(lse.nan_to_num(posinf=0.0), torch.cat(exact_lse, 1).nan_to_num(posinf=0.0), UNIT["f64"], 9 * S2)
    kv = torch.stack([k, v], 1)
    assert torch.equal(out, fascore.flash_attn.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 9, 8, **given))


def test_flash_attn_varlen_pages():
    torch.manual_seed(3)
    cu_q, cu_k = torch.tensor([0, 2, 5], dtype=torch.int32), torch.tensor([0, 300, 500], dtype=torch.int32)
    q, pages_k, pages_v = torch.randn(5, N1, D), torch.randn(6, 256, N2, D), torch.randn(6, 256, N2, D)
    table = torch.tensor([[4, 1], [0, 5]], dtype=torch.int32)
    k, v = (torch.cat([p[4], p[1][:44], p[0][:200]]) for p in (pages_k, pages_v))
    paged = fascore.flash_attn.flash_attn_varlen_func(q, pages_k, pages_v, cu_q, cu_k, 3, 300, block_table=table)
    assert torch.equal(paged, fascore.flash_attn.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 3, 300))


@pytest.mark.parametrize("packed", [False, True])
def test_flash_attn_dropout_and_its_matrix(packed):
    q, k, v = flash_inputs()
    given = {"dropout_p": 0.3, "causal": True, "return_attn_probs": True}
    torch.manual_seed(8)
    if packed:
        cu_q, cu_k = (torch.arange(B + 1, dtype=torch.int32) * s for s in (S1, S2))
        flat = [t.flatten(0, 1) for t in (q, k, v)]
        out, lse, weights = fascore.flash_attn.flash_attn_varlen_func(*flat, cu_q, cu_k, S1, S2, **given)
        out, lse = out.unflatten(0, (B, S1)), lse.unflatten(1, (B, S1)).transpose(0, 1)
    else:
        out, lse, weights = fascore.flash_attn.flash_attn_func(q, k, v, **given)
    assert weights.shape == (B, N1, 128, 128) and not weights[:, :, S1:].any() and not weights[..., S2:].any()
    weights = weights[:, :, :S1, :S2]
    close(lse, flash_formula(q, k, v, causal=True)[1], UNIT["f64"], 9 * S2)  # that of the undropped softmax
    close(weights.abs().sum(-1), torch.ones(B, N1, S1), UNIT["f64"], 9 * S2)
    kept = weights.clamp(min=0.0) / (round(256 * 0.7) / 256)
    close(out, (kept @ v.transpose(1, 2).repeat_interleave(2, 1)).transpose(1, 2), UNIT["f64"], 9 * S2)
    assert (weights < 0).any()


def test_flash_attn_refusals():
    q, k, v = flash_inputs()
    cu = torch.tensor([0, 3, 9])
    call = fascore.flash_attn.flash_attn_func
    for text, make in (
        ("softcap", lambda: call(q, k, v, 0.1, softcap=1.0)),
        ("window_size", lambda: call(q, k, v, window_size=(-5, 0))),
        ("window_size", lambda: call(q, k, v, window_size=(-1, -3))),
        ("heads", lambda: call(q[:, :, :3], k, v)),
        ("dtypes", lambda: call(q, k.float(), v)),
        ("alibi_slopes", lambda: call(q, k, v, alibi_slopes=torch.zeros(N1, dtype=torch.float64))),
        ("dropout_p", lambda: call(q, k, v, 1.0)),
        ("q: 3 axes", lambda: call(q[0], k, v)),
        ("qkv", lambda: fascore.flash_attn.flash_attn_qkvpacked_func(q)),
        ("int32", lambda: fascore.flash_attn.flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 6, 6)),
        ("start with 0", lambda: fascore.flash_attn.flash_attn_varlen_func(
            q[0], k[0], v[0], *[torch.tensor([4, 7, 9], dtype=torch.int32)] * 2, 6, 6)),
        ("as many", lambda: fascore.flash_attn.flash_attn_varlen_func(q[0], k[0], v[0], cu.int(), cu[:2].int(), 6, 6)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            make()


def ends_of(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


BAD_ENDS = {
    "decreasing": (ends_of(0, 5, 3), ends_of(0, 6, 12), "actual_seq_qlen: entry 1 is 3"),
    "not from 0": (ends_of(1, 3, 8), ends_of(0, 6, 12), "actual_seq_qlen: starts with"),
    "keys not from 0": (ends_of(0, 3, 8), ends_of(2, 6, 12), "actual_seq_kvlen: starts with"),
    "beyond": (ends_of(0, 3, 8), ends_of(0, 6, 100), "actual_seq_kvlen: ends at 100"),
    "keys decreasing": (ends_of(0, 3, 8), ends_of(0, 12, 6), "actual_seq_kvlen: entry 1 is 6"),
    "negative": (ends_of(0, -3, 8), ends_of(0, 6, 12), "actual_seq_qlen: entry 0 is -3"),
}


@pytest.mark.parametrize("slopes", [None, torch.rand(4)], ids=["plain", "alibi"])
@pytest.mark.parametrize("name", BAD_ENDS)
def test_flash_attn_varlen_checks_ends(name, slopes):
    ends_q, ends_k, text = BAD_ENDS[name]
    q, k = torch.randn(8, 4, D), torch.randn(12, 4, D)
    with pytest.raises(ValueError, match=f"^{text}"):
        fascore.flash_attn.flash_attn_varlen_func(q, k, k, ends_q, ends_k, 8, 12, alibi_slopes=slopes)
    with pytest.raises(ValueError, match=f"^{text}"):
        flash_attn_interface._flash_attn_varlen_forward(
            q, k, k, ends_q, ends_k, 8, 12, 0.0, 0.5, False, alibi_slopes=slopes
        )


@pytest.mark.parametrize("slopes", [None, torch.rand(4)], ids=["plain", "alibi"])
def test_flash_attn_varlen_of_sequences_that_are_not_there(slopes):
    # As the operator has it: an end of 0 behind others is a sequence without tokens.
    q, k = torch.randn(8, 4, D), torch.randn(12, 4, D)
    given = {"alibi_slopes": slopes, "return_attn_probs": True}
    absent = fascore.flash_attn.flash_attn_varlen_func(q, k, k, ends_of(0, 3, 0), ends_of(0, 6, 12), 8, 12, **given)
    empty = fascore.flash_attn.flash_attn_varlen_func(q, k, k, ends_of(0, 3, 3), ends_of(0, 6, 12), 8, 12, **given)
    assert absent[0].shape == q.shape
    assert all(torch.equal(a, b) for a, b in zip(absent, empty, strict=True))


def test_flash_attn_names_what_is_no_tensor_and_no_window():
    q, k, v = (t.detach() for t in flash_inputs())
    flash = fascore.flash_attn
    for text, call in (
        ("cu_seqlens_q: list", lambda: flash.flash_attn_varlen_func(q[0], k[0], v[0], [0, S1], [0, S2], S1, S2)),
        ("k: NoneType", lambda: flash.flash_attn_func(q, None, v)),
        ("qkv: list", lambda: flash.flash_attn_qkvpacked_func([q])),
        ("alibi_slopes: list", lambda: flash.flash_attn_func(q, k, v, alibi_slopes=[0.5])),
        ("window_size: 3, must be a sequence", lambda: flash.flash_attn_func(q, k, v, window_size=3)),
        ("k_cache: NoneType", lambda: flash.flash_attn_with_kvcache(q, None, v)),
        ("query: NoneType", lambda: fascore.torch_npu.npu_fusion_attention(None, k, v, N1, "BSND")),
        ("actual_seq_qlen: 3", lambda: fascore.torch_npu.npu_fusion_attention(
            q[0], k[0], v[0], N1, "TND", actual_seq_qlen=3, actual_seq_kvlen=[S2])),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"^{text}"):
            call()


def test_flash_attn_without_columns():
    q, k, v = torch.randn(1, 3, 2, 0), torch.randn(1, 5, 2, 0), torch.randn(1, 5, 2, 4)
    with pytest.raises(ValueError, match="^query: head_dim"):
        fascore.flash_attn.flash_attn_func(q, k, v)
    assert fascore.flash_attn.flash_attn_func(q, k, k).shape == q.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_flash_attn_sixteen_bit(dtype):
    q, k, v = (t.detach().to(dtype).requires_grad_() for t in flash_inputs())
    out = fascore.flash_attn.flash_attn_func(q, k, v, causal=True)
    exact = flash_formula(q, k, v, causal=True)[0]
    assert out.dtype == dtype
    unit = UNIT["bf16" if dtype == torch.bfloat16 else "f16"]
    close(out, exact, unit, 9)
    for a, b in zip(
        torch.autograd.grad(out.float().sum(), (q, k, v)), torch.autograd.grad(exact.sum(), (q, k, v)), strict=True
    ):
        close(a, b, unit, 9 * 4)  # theirs was rounded to the dtype too


def test_flash_attn_lower_layer_and_ring():
    """Keys in two parts, each differentiated with the statistics of the whole: what ring attention does."""
    q, k, v = (t.detach() for t in flash_inputs(dtype=torch.float64))
    lower = flash_attn_interface
    out, lse, weights, rng = lower._flash_attn_forward(q, k, v, 0.0, D**-0.5, False)
    assert weights.numel() == 0 and rng.shape == (2,)
    dout = torch.randn_like(out)
    whole = [torch.empty_like(t) for t in (q, k, v)]
    delta = lower._flash_attn_backward(dout, q, k, v, out, lse, *whole, 0.0, D**-0.5, False)
    close(delta[..., :S1], (dout * out).sum(-1).transpose(1, 2).float(), UNIT["f32"], 9 * D)
    dq = torch.zeros_like(q)
    for part in (slice(0, 6), slice(6, S2)):
        pieces = [torch.empty_like(q), torch.empty_like(k[:, part]), torch.empty_like(v[:, part])]
        lower._flash_attn_backward(dout, q, k[:, part], v[:, part], out, lse, *pieces, 0.0, D**-0.5, False)
        dq += pieces[0]
        close(pieces[1], whole[1][:, part], UNIT["f64"], 9 * S2)
        close(pieces[2], whole[2][:, part], UNIT["f64"], 9 * S2)
    close(dq, whole[0], UNIT["f64"], 9 * S2)
    cu_q, cu_k = (torch.arange(B + 1, dtype=torch.int32) * s for s in (S1, S2))
    flat = [t.flatten(0, 1) for t in (q, k, v)]
    packed, packed_lse, *_ = lower._flash_attn_varlen_forward(*flat, cu_q, cu_k, S1, S2, 0.0, D**-0.5, False)
    assert torch.equal(packed.unflatten(0, (B, S1)), out)
    again = [torch.empty_like(t) for t in flat]
    lower._flash_attn_varlen_backward(
        dout.flatten(0, 1), *flat, packed, packed_lse, *again, cu_q, cu_k, S1, S2, 0.0, D**-0.5, False
    )
    for a, b in zip(again, whole, strict=True):
        close(a, b.flatten(0, 1), UNIT["f64"], 9 * S2)


def test_flash_attn_with_kvcache():
    torch.manual_seed(5)
    q, k, v = torch.randn(B, 2, N1, D), torch.randn(B, 2, N2, D), torch.randn(B, 2, N2, D)
    cache_k, cache_v = torch.randn(3, 20, N2, D), torch.randn(3, 20, N2, D)
    before = cache_k.clone()
    held, slots = torch.tensor([5, 11], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)
    out, lse = fascore.flash_attn.flash_attn_with_kvcache(
        q, cache_k, cache_v, k, v, cache_seqlens=held, cache_batch_idx=slots, causal=True, return_softmax_lse=True
    )
    for b in range(B):
        slot, length = int(slots[b]), int(held[b]) + 2
        assert torch.equal(cache_k[slot, length - 2 : length], k[b])
        assert torch.equal(cache_k[slot, length:], before[slot, length:])
        exact, exact_lse = flash_formula(
            q[b : b + 1], cache_k[slot, :length][None], cache_v[slot, :length][None], causal=True
        )
        close(out[b], exact[0], UNIT["f32"], 9 * 20)
        close(lse[b], exact_lse[0], UNIT["f32"], 9 * 20)
    assert torch.equal(cache_k[1], before[1])
    # Rotary: turning q and k by their positions equals turning them beforehand.
    angle = torch.arange(20)[:, None] * torch.tensor([1.0, 0.1])
    cos, sin = angle.cos(), angle.sin()
    for interleaved in (False, True):
        fresh_k, fresh_v = torch.zeros(1, 20, N2, D), torch.zeros(1, 20, N2, D)
        given = {"rotary_cos": cos, "rotary_sin": sin, "cache_seqlens": 0, "rotary_interleaved": interleaved}
        out = fascore.flash_attn.flash_attn_with_kvcache(q[:1], fresh_k, fresh_v, k[:1], v[:1], causal=True, **given)
        turned = []
        for t in (q[0], k[0]):
            t = t.clone()
            for position in range(2):
                for pair in range(2):
                    at = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 2)
                    a, b = t[position, :, at[0]].clone(), t[position, :, at[1]].clone()
                    c, s = cos[position, pair], sin[position, pair]
                    t[position, :, at[0]], t[position, :, at[1]] = a * c - b * s, a * s + b * c
            turned.append(t[None])
        close(out, flash_formula(turned[0], turned[1], v[:1], causal=True)[0], UNIT["f32"], 9 * 20)


def kv_cache():
    return torch.randn(2, 2, N1, D), torch.randn(3, 16, N2, D), torch.randn(2, 2, N2, D)


CACHE_REFUSALS = {
    "cache_seqlens: -3, must be 0 to 16": {"cache_seqlens": -3},
    "cache_seqlens: 40, must be 0 to 16": {"cache_seqlens": 40},
    "cache_seqlens: 17, must be 0 to 16": {"cache_seqlens": ends_of(3, 17)},
    r"cache_seqlens: torch.int32 of shape \(3,\), must be int32 of \(2,\)": {"cache_seqlens": ends_of(3, 4, 5)},
    r"cache_seqlens: torch.int32 of shape \(1,\)": {"cache_seqlens": ends_of(3)},
    "cache_seqlens: torch.float32": {"cache_seqlens": torch.ones(2)},
    "cache_batch_idx: 3, must be 0 to 2": {"cache_batch_idx": ends_of(0, 3)},
    "cache_batch_idx: -1": {"cache_batch_idx": ends_of(0, -1)},
    r"cache_batch_idx: torch.int32 of shape \(1,\)": {"cache_batch_idx": ends_of(0)},
    "cache_leftpad: -2, must be 0 to 16": {"cache_leftpad": ends_of(0, -2)},
    r"block_table: torch.int32 of shape \(1, 1\)": {"block_table": ends_of(0).view(1, 1)},
    "block_table: blocks": {"block_table": ends_of(0, 3).view(2, 1)},
    "cache_batch_idx: given with block_table": {
        "block_table": ends_of(0, 1).view(2, 1), "cache_batch_idx": ends_of(0, 1),
    },
}  # fmt: skip


@pytest.mark.parametrize("text", CACHE_REFUSALS)
def test_flash_attn_with_kvcache_refusals(text):
    q, cache, _ = kv_cache()
    with pytest.raises(ValueError, match=f"^{text}"):
        fascore.flash_attn.flash_attn_with_kvcache(q, cache, cache, **CACHE_REFUSALS[text])


def test_flash_attn_with_kvcache_refuses_more_than_there_is_room_for():
    q, cache, new = kv_cache()
    before = cache.clone()
    call = fascore.flash_attn.flash_attn_with_kvcache
    for text, arguments, given in (
        ("cache_seqlens: 15, must be 0 to 14", (new, new), {"cache_seqlens": 15}),
        ("cache_seqlens: absent, must be given with k and v", (new, new), {}),
        ("v: batch 1, must be q's 2", (new, new[:1]), {"cache_seqlens": 3}),
        ("k: 3 axes", (new[0], new), {"cache_seqlens": 3}),
    ):
        with pytest.raises(ValueError, match=f"^{text}"):
            call(q, cache, cache.clone(), *arguments, **given)
    with pytest.raises(ValueError, match="^k_cache: batch 1, must be at least q's 2"):
        call(q, cache[:1], cache[:1])
    with pytest.raises(ValueError, match="^v_cache: shape"):
        call(q, cache, cache[:, :8])
    with pytest.raises(TypeError, match="^cache_seqlens: 1.5, must be an integer"):
        call(q, cache, cache, cache_seqlens=1.5)
    assert torch.equal(cache, before)


def test_flash_attn_with_kvcache_on_pages():
    q, pages, _ = kv_cache()
    table = ends_of(2, 0, 1, 2).view(2, 2)
    held = torch.tensor([20, 16])
    paged = fascore.flash_attn.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=held, block_table=table)
    whole = torch.stack([pages[[2, 0]].flatten(0, 1), pages[[1, 2]].flatten(0, 1)])
    assert torch.equal(paged, fascore.flash_attn.flash_attn_with_kvcache(q, whole, whole, cache_seqlens=held))


def test_bert_padding():
    hidden = torch.randn(3, 5, 4, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]])
    packed, indices, cu, longest, used = bert_padding.unpad_input(hidden, mask)
    assert packed.shape == (8, 4) and cu.dtype == torch.int32
    assert cu.tolist() == [0, 2, 7, 8] and longest == 5 and used.tolist() == [2, 5, 1]
    padded = bert_padding.pad_input(packed, indices, 3, 5)
    assert torch.equal(padded, hidden * mask[..., None])
    (gradient,) = torch.autograd.grad(padded.sum(), hidden)
    assert torch.equal(gradient, mask[..., None].float().expand(3, 5, 4))
    unused = torch.tensor([[0, 0, 1, 0, 0], [0] * 5, [0] * 5])
    packed, _, cu, longest, used = bert_padding.unpad_input(hidden, mask, unused)
    assert cu.tolist() == [0, 3, 8, 9] and used.tolist() == [2, 5, 1]
    lengths = torch.tensor([[2, 1, 0, 0, 0], [5, 0, 0, 0, 0], [1, 1, 1, 0, 0]])
    packed, indices, cu, longest = bert_padding.unpad_input_for_concatenated_sequences(hidden, lengths)
    assert cu.tolist() == [0, 2, 3, 8, 9, 10, 11] and longest == 5 and packed.shape == (11, 4)


def test_autocast_of_surfaces():
    q = torch.randn(1, 5, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert fascore.flash_attn.flash_attn_func(q, q, q).dtype == torch.bfloat16
        assert fascore.torch_npu.npu_fusion_attention(q, q, q, 2, "BSND")[0].dtype == torch.bfloat16
        assert fascore.torch.attention(q, q, q, layout="BSND").dtype == torch.bfloat16


def test_compile_of_surfaces():
    torch._dynamo.reset()
    cu = torch.tensor([0, 5, 14], dtype=torch.int32)

    @torch.compile(fullgraph=True)
    def model(q, ends):
        dense = fascore.flash_attn.flash_attn_func(q[None], q[None], q[None], causal=True)
        packed = fascore.flash_attn.flash_attn_varlen_func(q, q, q, ends, ends, 9, 9, window_size=(3, 0))
        return dense[0] + packed

    q = torch.randn(14, 2, 8, requires_grad=True)
    expected = fascore.flash_attn.flash_attn_func(q[None], q[None], q[None], causal=True)[0]
    expected = expected + fascore.flash_attn.flash_attn_varlen_func(q, q, q, cu, cu, 9, 9, window_size=(3, 0))
    out = model(q, cu)
    close(out, expected, UNIT["f32"], 1)
    close(*(torch.autograd.grad(o.sum(), q)[0] for o in (out, expected)), UNIT["f32"], 1)
