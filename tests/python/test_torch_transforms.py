# SPDX-License-Identifier: Apache-2.0
"""What PyTorch wraps around a call: negated tensors, torch.jit.trace, torch.func, batched gradients, forward mode."""

import subprocess
import sys
import warnings

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as functional
from conftest import UNIT, close
from torch.func import functional_call, grad, hessian, jacrev, jvp, linearize, stack_module_state, vmap

import fascore
import fascore.flash_attn
import fascore.torch
import fascore.torch_npu
from fascore.torch import _ops, attention, scaled_dot_product_attention

B, N, L, S, E = 2, 3, 5, 7, 8
TERMS = 9 * (L + S)


def qkv():
    torch.manual_seed(0)
    return [torch.randn(B, N, length, E, dtype=torch.float64) for length in (L, S, S)]


def plain(query, key, value):
    """Attention of operations PyTorch differentiates in every way."""
    return torch.softmax(query @ key.transpose(-2, -1) * E**-0.5, -1) @ value


# --- negated tensors ----------------------------------------------------------------------------------------------


def negated(tensor):
    """The same numbers, from memory that holds their negatives."""
    result = torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
    assert result.is_neg() and torch.equal(result, tensor)
    return result


CALLS = {
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "attention": attention,
    "operator": lambda q, k, v: torch.ops.fascore.attention.default(q, k, v, *[None] * 9)[0],
    "canonical": lambda q, k, v: fascore.flash_attention_score(q, k, v).attention_out,
    "golden": lambda q, k, v: fascore.golden.flash_attention_score(q, k, v).attention_out,
    "flash_attn": fascore.flash_attn.flash_attn_func,
    "torch_npu": lambda q, k, v: fascore.torch_npu.npu_fusion_attention(q, k, v, N, "BNSD")[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_negated_tensors_are_read_as_what_they_are(name):
    inputs = qkv()
    if name == "flash_attn":
        inputs = [t.transpose(1, 2) for t in inputs]
    assert torch.equal(CALLS[name](*map(negated, inputs)), CALLS[name](*inputs))


def test_negated_inputs_of_a_call_that_is_differentiated():
    inputs = [t.requires_grad_() for t in qkv()]
    out = scaled_dot_product_attention(*map(negated, inputs))
    close(out, plain(*inputs), UNIT["f64"], TERMS)
    weights = torch.randn_like(out)
    expected = torch.autograd.grad(plain(*inputs), inputs, weights)
    for ours, theirs in zip(torch.autograd.grad(out, inputs, weights), expected, strict=True):
        close(ours, theirs, UNIT["f64"], TERMS)


def test_negated_gradient_of_the_output():
    weights = torch.complex(torch.ones(B, N, L, E), torch.randn(B, N, L, E)).to(torch.complex128)

    def gradient(function):
        inputs = [t.requires_grad_() for t in qkv()]
        out = function(*inputs)
        seen = []
        out.register_hook(lambda dy: seen.append(dy.is_neg()))
        (torch.complex(torch.ones_like(out), out).conj() * weights).real.sum().backward()
        assert seen == [True]
        return [t.grad for t in inputs]

    for ours, theirs in zip(gradient(scaled_dot_product_attention), gradient(plain), strict=True):
        close(ours, theirs, UNIT["f64"], TERMS)


def test_negated_inputs_of_the_canonical_gradient():
    query, key, value = qkv()
    saved = fascore.flash_attention_score(query, key, value)
    inputs = (query, key, value, query, saved.softmax_max, saved.softmax_sum, saved.attention_out)
    expected = fascore.flash_attention_score_grad(*inputs)
    got = fascore.flash_attention_score_grad(*map(negated, inputs))
    assert all(torch.equal(a, b) for a, b in zip(got[:3], expected[:3], strict=True))


def test_negated_outputs_are_refused():
    query, key, value = qkv()
    target = negated(torch.zeros(B, N, L, E, dtype=torch.float64))
    with pytest.raises(ValueError, match="attention_out: a tensor with the negative bit, must be one without"):
        fascore.flash_attention_score(query, key, value, out={"attention_out": target})


# --- torch.jit ------------------------------------------------------------------------------------------------------

# torch.jit says that it is deprecated, and of every size Python looks at that it is the example's.
quiet = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")


@quiet
def test_a_trace_holds_the_operator_and_takes_other_inputs():
    query, key, value = qkv()
    traced = torch.jit.trace(lambda q, k, v: scaled_dot_product_attention(q, k, v), (query, key, value))
    assert "fascore::attention" in str(traced.graph)
    for length in (L, L + 4):
        other = torch.randn(B + 1, N, length, E, dtype=torch.float64)
        assert torch.equal(traced(other, other, other), scaled_dot_product_attention(other, other, other))


LOADS = """
import sys, torch, fascore.torch
module = torch.jit.load(sys.argv[1])
x = torch.randn(1, 2, 9, 4)
assert torch.equal(module(x), fascore.torch.scaled_dot_product_attention(x, x, x))
"""


@quiet
def test_a_saved_trace_runs_in_another_process(tmp_path):
    example = torch.randn(1, 2, 5, 4)
    torch.jit.trace(lambda x: scaled_dot_product_attention(x, x, x), example).save(str(tmp_path / "traced.pt"))
    subprocess.run([sys.executable, "-W", "ignore", "-c", LOADS, tmp_path / "traced.pt"], check=True)


@quiet
def test_a_trace_of_a_module_is_differentiable():
    module = torch.nn.MultiheadAttention(E, 2, batch_first=True)

    class Attend(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x, x, x, need_weights=False)[0]

    with fascore.torch.enable():
        traced = torch.jit.trace(Attend(), torch.randn(2, 5, E))
    assert "fascore::attention" in str(traced.inlined_graph)
    x = torch.randn(2, 5, E)
    ours, theirs = traced(x), Attend()(x)
    close(ours, theirs, UNIT["f32"], TERMS)
    weights = torch.randn_like(ours)
    parameters = list(module.parameters())
    for a, b in zip(
        torch.autograd.grad(ours, parameters, weights), torch.autograd.grad(theirs, parameters, weights), strict=True
    ):
        close(a, b, UNIT["f32"], 9 * TERMS)


@quiet
def test_a_trace_of_the_other_surfaces():
    query = qkv()[0]
    ends = torch.tensor([0, 3, 8], dtype=torch.int32)
    for function, first, other in (
        (lambda t: fascore.torch_npu.npu_fusion_attention(t, t, t, N, "BNSD")[0], (query,), (query + 1,)),
        (lambda t: fascore.flash_attn.flash_attn_func(t, t, t, causal=True), (query,), (query + 1,)),
        (
            lambda t, cu: fascore.flash_attn.flash_attn_varlen_func(t, t, t, cu, cu, 9, 9),
            (torch.randn(8, N, E), ends),
            (torch.randn(8, N, E), ends.new_tensor([0, 6, 8])),
        ),
    ):
        assert torch.equal(torch.jit.trace(function, first)(*other), function(*other))


# --- torch.func and batched gradients -------------------------------------------------------------------------------


def test_func_grad():
    inputs = qkv()

    def loss(function):
        return lambda *tensors: function(*tensors).pow(2).sum()

    ours = grad(loss(scaled_dot_product_attention), argnums=(0, 1, 2))(*inputs)
    theirs = grad(loss(plain), argnums=(0, 1, 2))(*inputs)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, UNIT["f64"], TERMS)


def test_func_grad_through_the_log_sum_exp():
    query, key, value = qkv()

    def ours(q):
        out, lse = attention(q, key, value, return_lse=True)
        return out.sum() + lse.pow(2).sum()

    def theirs(q):
        return plain(q, key, value).sum() + torch.logsumexp(q @ key.transpose(2, 3) * E**-0.5, -1).pow(2).sum()

    close(grad(ours)(query), grad(theirs)(query), UNIT["f64"], 9 * TERMS)


def test_func_jacrev():
    inputs = qkv()
    ours = jacrev(scaled_dot_product_attention, argnums=(0, 1, 2))(*inputs)
    theirs = jacrev(plain, argnums=(0, 1, 2))(*inputs)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b, UNIT["f64"], TERMS)


def test_func_vmap_of_grad_is_a_gradient_a_sample():
    inputs = qkv()

    def loss(function):
        return lambda q, k, v: function(q[None], k[None], v[None]).pow(2).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where an operator has no rule for vmap
        ours = vmap(grad(loss(scaled_dot_product_attention), argnums=(0, 1, 2)))(*inputs)
    for a, b in zip(ours, vmap(grad(loss(plain), argnums=(0, 1, 2)))(*inputs), strict=True):
        close(a, b, UNIT["f64"], TERMS)


def test_func_vmap_over_a_bias():
    inputs, bias = qkv(), torch.randn(4, N, L, S, dtype=torch.float64)

    def loss(b):
        return attention(*inputs, bias=b[None]).pow(2).sum()

    assert torch.equal(vmap(grad(loss))(bias), torch.stack([grad(loss)(b) for b in bias]))
    assert torch.equal(vmap(loss)(bias), torch.stack([loss(b) for b in bias]))


def test_func_ensemble_of_stock_modules():
    modules = [torch.nn.MultiheadAttention(E, 2, batch_first=True) for _ in range(3)]
    parameters, buffers = stack_module_state(modules)
    x = torch.randn(2, 5, E)

    def loss(p, b):
        return functional_call(modules[0], (p, b), (x, x, x), {"need_weights": False})[0].pow(2).sum()

    theirs = vmap(grad(loss))(parameters, buffers)
    with fascore.torch.enable():
        ours = vmap(grad(loss))(parameters, buffers)
    for name, reference in theirs.items():
        close(ours[name], reference, UNIT["f32"], 9 * TERMS)


def test_func_vmap_of_gradients_by_hand():
    query, key, value = qkv()
    out, softmax_max, softmax_sum, *_ = fascore.torch_npu.npu_fusion_attention(query, key, value, N, "BNSD")

    def gradient(dy):
        return fascore.torch_npu.npu_fusion_attention_grad(
            query, key, value, dy, N, "BNSD", softmax_max=softmax_max, softmax_sum=softmax_sum, attention_in=out
        )[1]

    many = torch.randn(3, *out.shape, dtype=torch.float64)
    assert torch.equal(vmap(gradient)(many), torch.stack([gradient(dy) for dy in many]))


def test_batched_gradients():
    inputs = [t.requires_grad_() for t in qkv()]
    out = scaled_dot_product_attention(*inputs)
    many = torch.randn(4, *out.shape, dtype=torch.float64)
    ours = torch.autograd.grad(out, inputs, many, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(out, inputs, dy, retain_graph=True) for dy in many]
    for at, batched in enumerate(ours):
        assert torch.equal(batched, torch.stack([one[at] for one in each]))


def test_jacobian_in_one_go():
    query, key, value = qkv()
    ours = torch.autograd.functional.jacobian(
        lambda q: scaled_dot_product_attention(q, key, value), query, vectorize=True
    )
    close(ours, torch.autograd.functional.jacobian(lambda q: plain(q, key, value), query), UNIT["f64"], TERMS)


def test_func_second_derivative_says_it_is_not_there():
    query, key, value = qkv()

    def loss(q):
        return scaled_dot_product_attention(q, key, value).pow(2).sum()

    with pytest.raises(NotImplementedError, match="second derivative"):
        grad(lambda q: grad(loss)(q).sum())(query)


# --- forward mode ---------------------------------------------------------------------------------------------------


def under_dual(function):
    """A call of `function` on a query with a tangent."""

    def call():
        query, key, value = qkv()
        with forward_ad.dual_level():
            return function(forward_ad.make_dual(query, torch.ones_like(query)), key, value)

    return call


def gradient_of_dual():
    inputs = [t.requires_grad_() for t in qkv()]
    out = scaled_dot_product_attention(*inputs)
    with forward_ad.dual_level():
        torch.autograd.grad(out, inputs, forward_ad.make_dual(torch.ones_like(out), torch.ones_like(out)))


def transformed(transform):
    """A call of `transform` on a function of the query, and the query."""

    def call():
        query, key, value = qkv()
        transform(lambda q: scaled_dot_product_attention(q, key, value).sum(), query)

    return call


FORWARD_MODE = {
    "make_dual": under_dual(scaled_dot_product_attention),
    "make_dual and requires_grad": under_dual(lambda q, k, v: scaled_dot_product_attention(q, k.requires_grad_(), v)),
    "make_dual of the mask": under_dual(lambda q, k, v: scaled_dot_product_attention(k, k, v, q[:1, :1, :1, :1])),
    "make_dual, attention": under_dual(lambda q, k, v: attention(q, k, v, return_lse=True)),
    "make_dual, operator": under_dual(CALLS["operator"]),
    "make_dual, flash_attn": under_dual(lambda q, k, v: fascore.flash_attn.flash_attn_func(q, q, q)),
    "make_dual, torch_npu": under_dual(CALLS["torch_npu"]),
    "make_dual of dy": gradient_of_dual,
    "func.jvp": transformed(lambda function, query: jvp(function, (query,), (query,))),
    "func.linearize": transformed(linearize),
    "func.hessian": transformed(lambda function, query: hessian(function)(query)),
}


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode_says_it_is_not_there(name):
    with pytest.raises(NotImplementedError, match="forward-mode"):
        FORWARD_MODE[name]()


def test_forward_mode_of_something_else_is_no_matter():
    inputs = qkv()
    with forward_ad.dual_level():
        assert torch.equal(scaled_dot_product_attention(*inputs), scaled_dot_product_attention(*inputs))
        out = scaled_dot_product_attention(*inputs) * forward_ad.make_dual(torch.ones(E), torch.ones(E))
        assert forward_ad.unpack_dual(out).tangent is not None


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dispatched", [False, True])
def test_set_num_threads_is_obeyed(monkeypatch, dispatched):
    monkeypatch.delenv("FASCORE_NUM_THREADS", raising=False)
    seen = []
    for name in ("forward", "backward"):
        kernel = getattr(fascore._core, name)
        monkeypatch.setattr(
            fascore._core, name, lambda p, i, o, threads, *rest, _kernel=kernel: (seen.append(threads),
                                                                                 _kernel(p, i, o, threads, *rest))[1]
        )  # fmt: skip
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            seen.clear()
            with fascore.torch.enable():
                function = CALLS["operator"] if dispatched else functional.scaled_dot_product_attention
                function(*(t.requires_grad_() for t in qkv())).sum().backward()
                function(*qkv())
            assert seen == [threads] * 3
    finally:
        torch.set_num_threads(before)


def test_operators_return_tensors_not_lists():
    # torch's own loop over a batch takes nothing else.
    for operator in (torch.ops.fascore.attention.default, torch.ops.fascore.attention_backward.default):
        assert all(isinstance(result.type, torch.TensorType) for result in operator._schema.returns)
    assert len(torch.ops.fascore.attention_backward.default._schema.returns) == _ops.DIFFERENTIABLE
