# SPDX-License-Identifier: Apache-2.0
"""fascore.torch.attention and the custom operators below it: autograd, compile, checkpointing, memory."""

import gc
import itertools
import math
import threading

import pytest
import torch
import torch.nn.functional as functional
from conftest import UNIT, close
from torch.autograd import gradcheck
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

import fascore
import fascore.torch
from fascore.torch import _ops, attention, scaled_dot_product_attention

B, N1, N2, S1, S2, D, DV = 1, 2, 1, 3, 4, 2, 3


def doubles(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def qkv():
    return doubles((B, N1, S1, D), (B, N2, S2, D), (B, N2, S2, DV))


OPTIONS = {
    "plain": {},
    "causal": {"rule": "causal_bottom_right"},
    "top left": {"rule": "causal_top_left"},
    "window": {"window": (1, 1)},
    "softcap": {"softcap": 0.7},
    "dropout": {"keep_prob": 0.75, "seed": 3},
    "mask": {"atten_mask": torch.tensor([[0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0]], dtype=torch.bool)},
    "scale": {"scale": 0.3},
}


@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_gradcheck(name, return_lse):
    def call(*inputs):
        result = attention(*inputs, **OPTIONS[name], return_lse=return_lse)
        if not return_lse:
            return result
        out, lse = result
        return out, lse.nan_to_num(neginf=0.0) if name in ("mask", "window", "causal") else lse

    assert gradcheck(call, qkv(), atol=1e-7)


@pytest.mark.parametrize("shape", [(B, N1, S1, S2), (1, N1, S1, S2), (1, 1, S1, S2), (1, N1, 1, S2)], ids=str)
def test_gradcheck_of_bias(shape):
    inputs = [*qkv(), *doubles(shape)]
    assert gradcheck(lambda q, k, v, b: attention(q, k, v, bias=b), inputs)
    assert gradcheck(lambda q, k, v, b: attention(q, k, v, pse=b, pse_type=1, scale=0.4), inputs)


def test_gradcheck_of_ropes():
    inputs = [*qkv(), *doubles((B, N1, S1, 2), (B, N2, S2, 2))]
    assert gradcheck(lambda q, k, v, qr, kr: attention(q, k, v, query_rope=qr, key_rope=kr), inputs)


def numeric(function, tensor, step):
    """Central differences of a scalar function of an f32 tensor."""
    result = torch.zeros_like(tensor, dtype=torch.float64)
    for at in range(tensor.numel()):
        moved = []
        for sign in (1, -1):
            copy = tensor.detach().clone()
            copy.view(-1)[at] += sign * step
            moved.append((function(copy).item(), copy.view(-1)[at].item()))
        result.view(-1)[at] = (moved[0][0] - moved[1][0]) / (moved[0][1] - moved[1][1])
    return result


@pytest.mark.parametrize("pse_type", [2, 3])
def test_gradient_of_slopes(pse_type):
    # Slopes are f32 by definition; everything else is f64, so differences with a step of 2^-9 have an error of step^2.
    inputs, weights = qkv(), torch.randn(B, N1, S1, DV, dtype=torch.float64)
    slopes = torch.tensor([0.5, 0.25], requires_grad=True)

    def loss(s):
        return (attention(*inputs, pse=s, pse_type=pse_type, q_start_idx=1) * weights).sum()

    (gradient,) = torch.autograd.grad(loss(slopes), slopes)
    expected = numeric(loss, slopes, 2.0**-9)
    assert (gradient - expected).abs().max() < 2.0**-14


def test_gradient_of_sink():
    inputs, weights = qkv(), torch.randn(B, N1, S1, DV, dtype=torch.float64)
    sink = torch.tensor([0.5, -0.25], requires_grad=True)

    def loss(s):
        return (attention(*inputs, sink=s) * weights).sum()

    (gradient,) = torch.autograd.grad(loss(sink), sink)
    assert (gradient - numeric(loss, sink, 2.0**-9)).abs().max() < 2.0**-14


def test_gradient_of_the_log_sum_exp():
    query, key, value = qkv()
    _, lse = attention(query, key, value, return_lse=True)
    exact = torch.logsumexp(query @ key.transpose(2, 3) * D**-0.5, -1)
    close(lse, exact, UNIT["f64"], 9 * S2)
    weights = torch.randn_like(lse)
    ours = torch.autograd.grad(lse, (query, key, value), weights)
    theirs = torch.autograd.grad(exact, (query, key), weights)
    close(ours[0], theirs[0], UNIT["f64"], 9 * S2)
    close(ours[1], theirs[1], UNIT["f64"], 9 * S2)
    assert not ours[2].any()


def test_packed_sequences():
    ends_q, ends_kv = [3, 3, 8], [5, 6, 9]
    query, key, value = doubles((8, N1, D), (9, N2, D), (9, N2, DV))

    def call(q, k, v):
        out, lse = attention(
            q, k, v, layout="TND", actual_seq_qlen=ends_q, actual_seq_kvlen=torch.tensor(ends_kv),
            rule="causal_bottom_right", return_lse=True,
        )  # fmt: skip
        return out, lse.nan_to_num(neginf=0.0)

    assert gradcheck(call, (query, key, value))
    out, lse = call(query, key, value)
    alone, alone_lse = attention(
        query[None, 3:8].transpose(1, 2), key[None, 6:9].transpose(1, 2), value[None, 6:9].transpose(1, 2),
        rule="causal_bottom_right", return_lse=True,
    )  # fmt: skip
    assert torch.equal(out[3:8], alone[0].transpose(0, 1))
    assert torch.equal(lse[3:8].t(), alone_lse[0].nan_to_num(neginf=0.0))


def test_layouts_agree():
    query, key, value = doubles((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
    expected = attention(query, key, value)
    bsnd = [t.transpose(1, 2) for t in (query, key, value)]
    assert torch.equal(attention(*bsnd, layout="BSND").transpose(1, 2), expected)
    bsh = [t.flatten(2) for t in bsnd]
    assert torch.equal(attention(*bsh, layout="BSH", head_num=3).unflatten(2, (3, 4)).transpose(1, 2), expected)
    sbh = [t.transpose(0, 1) for t in bsh]
    out = attention(*sbh, layout="SBH", head_num=3)
    assert torch.equal(out.transpose(0, 1).unflatten(2, (3, 4)).transpose(1, 2), expected)


SAMPLES = {
    "plain": ((), {"scale": 0.4}),
    "lse": ((), {"scale": 0.4, "return_lse": True, "rule": "causal_bottom_right"}),
    "eight copies": ((), {"scale": 0.4, "copies": 8, "return_lse": True}),
    "bias": (((None, None, "bias"),), {"pse_type": 0}),
    "dropout": (((None,) * 8 + ("rng",),), {"keep_prob": 0.75}),
}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name, transposed):
    extra, keywords = SAMPLES[name]
    inputs = [torch.randn(2, 3, length, 4) for length in (5, 6, 6)]
    if transposed:
        inputs = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs]
    made = {"bias": torch.randn(1, 3, 5, 6, requires_grad=True), "rng": torch.tensor([3, 0])}
    rest = [made[item] if isinstance(item, str) else None for item in (extra[0] if extra else ())]
    arguments = [*(t.requires_grad_() for t in inputs), *rest]
    arguments += [None] * (len(_ops.TENSORS) - len(arguments))
    opcheck(torch.ops.fascore.attention.default, tuple(arguments), keywords)
    detached = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in arguments)
    out, softmax_max, softmax_sum, _ = torch.ops.fascore.attention.default(*detached, **keywords)
    keywords = {key: value for key, value in keywords.items() if key != "return_lse"}
    want = [True, False, True, False, False, name == "bias", False]
    opcheck(
        torch.ops.fascore.attention_backward.default,
        (torch.randn_like(out), None, out, softmax_max, softmax_sum, *detached, want),
        keywords,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    torch._dynamo.reset()

    def model(query, key, value, mask):
        out = scaled_dot_product_attention(query * 2, key, value, mask)
        out, lse = attention(query + out.mean(), key, value, rule="causal_bottom_right", return_lse=True)
        return (out.sin().sum() + lse.sum()) / 7

    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for length in (5, 9) if dynamic else (5,):
        torch.manual_seed(length)
        inputs = [torch.randn(2, 3, length, 4, requires_grad=True) for _ in range(3)]
        inputs.append(torch.randn(1, 1, length, length, requires_grad=True))
        eager, fused = model(*inputs), compiled(*inputs)
        close(fused, eager, UNIT["f32"], 3000)
        for a, b in zip(torch.autograd.grad(fused, inputs), torch.autograd.grad(eager, inputs), strict=True):
            close(a, b, UNIT["f32"], 3000)


def test_compile_with_enable_and_dropout():
    torch._dynamo.reset()
    value = torch.eye(32).expand(1, 2, 32, 32)
    query = torch.zeros(1, 2, 32, 4)

    @torch.compile(fullgraph=True)
    def model(q, v):
        return functional.scaled_dot_product_attention(q, q, v, dropout_p=0.5)

    with fascore.torch.enable():
        first, second = model(query, value), model(query, value)
    # 2048 fair bits: 4.5 standard deviations of their mean are 0.05.
    for out in (first, second):
        assert abs(float((out > 0).float().mean()) - 0.5) < 0.05
    assert not torch.equal(first, second)


def test_operator_and_eager_path_agree():
    inputs = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    arguments = (*inputs, *(None,) * 9)
    direct = _ops.attention(arguments, scale=0.4)[0]
    dispatched = torch.ops.fascore.attention.default(*arguments, scale=0.4)[0]
    assert torch.equal(direct, dispatched)
    dy = torch.randn_like(direct)
    for a, b in zip(torch.autograd.grad(direct, inputs, dy), torch.autograd.grad(dispatched, inputs, dy), strict=True):
        assert torch.equal(a, b)


def test_second_derivative_says_it_is_not_there():
    inputs = qkv()
    out = attention(*inputs)
    (gradient,) = torch.autograd.grad(out.sum(), inputs[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        torch.autograd.grad(gradient.pow(2).sum(), inputs[1])


def test_gradient_of_part_under_create_graph():
    # create_graph for the sake of something else must not be refused.
    inputs = qkv()
    loss = attention(*inputs).sum() + inputs[0].pow(3).sum()
    (gradient,) = torch.autograd.grad(loss, inputs[0], create_graph=True)
    assert gradient.shape == inputs[0].shape


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_redraws_the_same_mask(reentrant):
    inputs = [torch.randn(1, 2, 33, 8, requires_grad=True) for _ in range(3)]

    def block(q, k, v):
        return scaled_dot_product_attention(q, k, v, dropout_p=0.4)

    torch.manual_seed(9)
    plain = block(*inputs)
    expected = torch.autograd.grad(plain.sum(), inputs)
    for tensor in inputs:
        tensor.grad = None
    torch.manual_seed(9)
    again = checkpoint(block, *inputs, use_reentrant=reentrant)
    torch.randn(17)  # the generator moves on before the backward
    again.sum().backward()
    assert torch.equal(again, plain)
    for tensor, reference in zip(inputs, expected, strict=True):
        assert torch.equal(tensor.grad, reference)


def test_no_copies(monkeypatch):
    """The extension is handed the very memory of the caller's tensors."""
    seen = []
    forward = fascore._core.forward

    def spy(params, inputs, outputs, *rest):
        seen.extend(t.data_ptr() for t in inputs if t is not None)
        return forward(params, inputs, outputs, *rest)

    monkeypatch.setattr(fascore._core, "forward", spy)
    fused = torch.randn(2, 7, 3, 4, 8)
    query, key, value = (t.transpose(1, 2) for t in fused.unbind(2))
    mask = torch.randn(1, 1, 7, 7)
    scaled_dot_product_attention(query, key, value, mask)
    assert seen == [query.data_ptr(), key.data_ptr(), value.data_ptr(), mask.data_ptr()]
    seen.clear()
    bias = mask.expand(2, 4, 7, 7)
    attention(query, key, value, bias=bias)
    assert seen[3] == mask.data_ptr()


def test_storage_of_results_follows_the_inputs():
    # Heads inside rows, as a projection leaves them: results have that order, so the transposes around cost nothing.
    query, key, value = (torch.randn(2, 7, 4, 8).transpose(1, 2).requires_grad_() for _ in range(3))
    out = scaled_dot_product_attention(query, key, value)
    assert out.transpose(1, 2).is_contiguous()
    for gradient in torch.autograd.grad(out.sum(), (query, key, value)):
        assert gradient.transpose(1, 2).is_contiguous()


def test_seed_and_offset_are_64_bit():
    inputs = [torch.randn(1, 1, 9, 4) for _ in range(3)]
    for seed in (1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF):
        ours = attention(*inputs, keep_prob=0.5, seed=seed, scale=1.0)
        theirs = fascore.flash_attention_score(*inputs, keep_prob=0.5, seed=seed)
        assert torch.equal(ours, theirs.attention_out)


def test_canonical_call_on_torch_tensors():
    inputs = [torch.randn(1, 2, 9, 4, dtype=torch.bfloat16) for _ in range(4)]
    saved = fascore.flash_attention_score(*inputs[:3], scale=0.5)
    assert isinstance(saved.attention_out, torch.Tensor) and saved.attention_out.dtype == torch.bfloat16
    gradient = fascore.flash_attention_score_grad(
        *inputs, saved.softmax_max, saved.softmax_sum, saved.attention_out, scale=0.5
    )
    exact = fascore.golden.flash_attention_score_grad(*inputs, scale=0.5)
    assert exact.dq.dtype == torch.float64
    close(gradient.dq, exact.dq, UNIT["bf16"], 9)
    eight = [t.to(torch.float8_e4m3fn) for t in inputs[:3]]
    assert fascore.flash_attention_score(*eight, out_dtype=1).attention_out.dtype == torch.bfloat16
    with pytest.raises(TypeError, match="query: dtype torch.int32"):
        fascore.flash_attention_score(inputs[0].int(), *inputs[1:3])


def test_python_threads():
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(1, 2, 50 + seed, 16, generator=generator).requires_grad_() for _ in range(3)]
        first = None
        for _ in range(15):
            out = scaled_dot_product_attention(*inputs, is_causal=True)
            results = (out, *torch.autograd.grad(out.sum(), inputs))
            if first is None:
                first = results
            elif not all(torch.equal(a, b) for a, b in zip(results, first, strict=True)):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_memory_is_flat():
    from test_operator import resident

    inputs = [torch.randn(1, 1, 96, 64, requires_grad=True) for _ in range(3)]

    def round_trip():
        out = scaled_dot_product_attention(*inputs, dropout_p=0.1)
        torch.autograd.grad(out.sum(), inputs)

    for _ in range(200):
        round_trip()
    gc.collect()
    before = resident()
    for _ in range(1000):
        round_trip()
    gc.collect()
    assert resident() - before < 4 << 20  # one leaked gradient a call would be 24 MiB


def test_memory_is_linear_beside_the_mask(tmp_path):
    """A trainable mask: what is allocated beyond the mask and its gradient does not grow with S squared."""
    from test_operator import resident

    extra = []
    for length in (512, 2048):
        inputs = [torch.randn(1, 1, length, 16, requires_grad=True) for _ in range(3)]
        mask = torch.zeros(1, 1, length, length, requires_grad=True)
        before = resident()
        out = scaled_dot_product_attention(*inputs, mask)
        gradients = torch.autograd.grad(out.sum(), [*inputs, mask])
        extra.append(resident() - before - gradients[3].numel() * 4)
    # 16 times the pairs; one hidden copy of the scores would be 16 MiB.
    assert extra[1] < 8 << 20


def test_options_are_checked():
    inputs = [torch.randn(1, 2, 5, 4) for _ in range(3)]
    for text, given in (
        ("bias: given together", {"bias": torch.zeros(5, 5), "pse": torch.zeros(5, 5)}),
        ("window: given with rule", {"window": (1, 1), "rule": "causal_top_left"}),
        ("rule: 'left'", {"rule": "left"}),
        ("keep_prob", {"keep_prob": -0.5}),
        ("head_num", {"layout": "BSH"}),
        ("query: 4 axes", {"layout": "BSH", "head_num": 2}),
    ):
        changed = [t.flatten(0, 1) for t in inputs] if text == "head_num" else inputs
        with pytest.raises(ValueError, match=text):
            attention(*changed, **given)


def test_types_are_checked():
    inputs = [torch.randn(1, 2, 5, 4) for _ in range(3)]
    attention(*inputs, sparse_mode=0, window=(1, 2))
    for text, given in (
        ("window: 3, must be a sequence", {"window": 3}),
        ("window: 1.0, must be an integer", {"window": (1.0, 2)}),
        ("sparse_mode: 0.0, must be an integer", {"sparse_mode": 0.0}),
        ("seed: 1.0, must be an integer", {"keep_prob": 0.5, "seed": 1.0}),
        ("offset: 1.5, must be an integer", {"keep_prob": 0.5, "seed": 1, "offset": 1.5}),
        ("layout: 3, must be a string", {"layout": 3}),
        ("actual_seq_qlen: 5, must be a sequence", {"actual_seq_qlen": 5}),
        ("prefix: 1.5, must be an integer", {"prefix": [1.5]}),
    ):
        with pytest.raises(TypeError, match=f"^{text}"):
            attention(*inputs, **given)
    for text, given in (
        (f"window: {2**70}, must be a 64-bit", {"window": (2**70, 0)}),
        (f"prefix: {2**70}, must be a 64-bit", {"prefix": [2**70]}),
        ("layout: 'BDSN', must be one of", {"layout": "BDSN"}),
    ):
        with pytest.raises(ValueError, match=f"^{text}"):
            attention(*inputs, **given)
    flat = torch.zeros(1, 5, 8)
    with pytest.raises(ValueError, match=f"^head_num: {2**40}, must be 1 to 256"):
        attention(flat, flat, flat, layout="BSH", head_num=2**40)


def test_what_is_not_a_tensor_is_named():
    query, key, value = (torch.randn(1, 2, 5, 4) for _ in range(3))
    for function in (attention, scaled_dot_product_attention):
        with pytest.raises(TypeError, match="^query: NoneType, must be a torch.Tensor"):
            function(None, key, value)
        with pytest.raises(TypeError, match="^value: ndarray, must be a torch.Tensor"):
            function(query, key, value.numpy())
    with pytest.raises(TypeError, match="^attn_mask: ndarray, must be a torch.Tensor"):
        scaled_dot_product_attention(query, key, value, torch.zeros(5, 5).numpy())


def test_default_scale():
    inputs = [torch.randn(1, 2, 5, 4) for _ in range(3)]
    assert torch.equal(attention(*inputs), attention(*inputs, scale=1 / math.sqrt(4)))
    ropes = {"query_rope": torch.randn(1, 2, 5, 2), "key_rope": torch.randn(1, 2, 5, 2)}
    assert torch.equal(attention(*inputs, **ropes), attention(*inputs, **ropes, scale=1 / math.sqrt(6)))
    flat = [t.transpose(1, 2).flatten(2) for t in inputs]
    given = {"layout": "BSH", "head_num": 2}
    assert torch.equal(attention(*flat, **given), attention(*flat, **given, scale=0.5))


@pytest.mark.parametrize("wanted", [w for w in itertools.product((False, True), repeat=4) if any(w)])
def test_only_needed_outputs_are_computed(monkeypatch, wanted):
    seen = []
    backward = fascore._core.backward
    monkeypatch.setattr(
        fascore._core,
        "backward",
        lambda params, inputs, outputs, *rest: (seen.append([o is not None for o in outputs]),
                                                backward(params, inputs, outputs, *rest))[1],
    )  # fmt: skip
    inputs = [torch.randn(1, 2, 5, 4) for _ in range(3)] + [torch.randn(1, 2, 5, 5)]
    inputs = [t.requires_grad_(need) for t, need in zip(inputs, wanted, strict=True)]
    attention(*inputs[:3], bias=inputs[3]).sum().backward()
    assert seen == [[*wanted[:3], False, False, wanted[3], False]]
