# SPDX-License-Identifier: Apache-2.0
"""fascore.flash_attention_score and _grad on NumPy arrays: values against the reference, and how the door behaves."""

import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from conftest import UNIT, close

import fascore

DTYPES = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
B, N1, N2, S1, S2, D, DV = 2, 4, 2, 19, 37, 16, 24


def random(shape, dtype="f32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def to_layout(bnsd, layout):
    if layout == "BNSD":
        return bnsd
    bsnd = bnsd.transpose(0, 2, 1, 3)
    if layout == "BSND":
        return np.ascontiguousarray(bsnd)
    batch, rows, heads, columns = bsnd.shape
    bsh = bsnd.reshape(batch, rows, heads * columns)
    return bsh if layout == "BSH" else np.ascontiguousarray(bsh.transpose(1, 0, 2))


def problem(dtype="f32", layout="BNSD"):
    """query, key, value, dy"""
    shapes = ((B, N1, S1, D), (B, N2, S2, D), (B, N2, S2, DV), (B, N1, S1, DV))
    return [to_layout(random(shape, dtype, seed), layout) for seed, shape in enumerate(shapes)]


def run_both(dtype, given, arrays, **only_grad):
    """Results of the operator beside those of the reference."""
    query, key, value, dy = arrays
    ours = fascore.flash_attention_score(query, key, value, **given)
    exact = fascore.golden.flash_attention_score(query, key, value, **given)
    gradient = fascore.flash_attention_score_grad(
        query, key, value, dy, ours.softmax_max, ours.softmax_sum, ours.attention_out, **given, **only_grad
    )
    exact_gradient = fascore.golden.flash_attention_score_grad(query, key, value, dy, **given, **only_grad)
    return ours, exact, gradient, exact_gradient


def compare(dtype, ours, exact, gradient, exact_gradient):
    # Each element: one rounding to the dtype, behind it a chain of three sums (scores, weights, products) of at most S1
    # + S2 terms in f32 or f64, and for 16-bit dtypes the weights rounded once more on the way.
    unit, terms = UNIT[dtype], 9 * (S1 + S2) if dtype in ("f32", "f64") else 9
    close(ours.attention_out, exact.attention_out, unit, terms)
    statistics_unit = UNIT["f64" if dtype == "f64" else "f32"]
    close(ours.softmax_max, exact.softmax_max, statistics_unit, 9 * D)
    close(ours.softmax_sum, exact.softmax_sum, statistics_unit, 9 * (D + S2))
    for name, value, reference in zip(gradient._fields, gradient, exact_gradient, strict=True):
        assert (value is None) == (reference is None), name
        if value is not None:  # dsink is one sum of products dy * attention_out over batches, rows and columns
            close(value, reference, unit, B * S1 * DV if name == "dsink" else terms)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_and_dtypes(layout, dtype):
    given = {"layout": layout, "head_num": N1, "scale": 0.25, "rule": "causal_bottom_right"}
    results = run_both(dtype, given, problem(dtype, layout))
    assert results[0].attention_out.dtype == DTYPES[dtype]
    assert results[0].softmax_max.shape == (B, N1, S1, 8)
    assert results[0].softmax_max.dtype == (np.float64 if dtype == "f64" else np.float32)
    assert (results[0].softmax_max == results[0].softmax_max[..., :1]).all()
    compare(dtype, *results)


FEATURES = {
    "bias": {"pse": random((1, N1, S1, S2), seed=5), "pse_type": 0},
    "bias before scale": {"pse": random((B, N1, 1, S2), seed=5), "pse_type": 1},
    "slopes": {"pse": np.array([0.5, 0.25, 0.1, 0.0], np.float32), "pse_type": 2, "q_start_idx": S2 - S1},
    "root slopes": {"pse": random((B, N1), seed=5) ** 2, "pse_type": 3},
    "mask": {"atten_mask": np.random.default_rng(3).random((B, 1, S1, S2)) < 0.4},
    "mode 4": {"atten_mask": np.triu(np.ones((2048, 2048), bool), 1), "sparse_mode": 4, "pre_tokens": 7,
               "next_tokens": 3},
    "prefix": {
        "atten_mask": np.concatenate([np.triu(np.ones((2048, 2048), bool), 1), np.zeros((1024, 2048), bool)]),
        "sparse_mode": 6,
        "prefix": [S2 - S1, 30],
    },
    "window": {"window": (5, 3)},
    "dropout": {"keep_prob": 0.8, "seed": 7, "offset": 3},
    "softcap": {"softcap": 1.5},
    "sink": {"sink": np.array([0.5, -1.0, 2.0, 0.0], np.float32)},
    "rope": {"query_rope": random((B, N1, S1, 8), seed=6), "key_rope": random((B, N2, S2, 8), seed=7)},
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
def test_features(name):
    given = dict(FEATURES[name], scale=0.25)
    results = run_both("f32", given, problem())
    compare("f32", *results)
    # API-09: none of them may be without effect.
    query, key, value, _ = problem()
    plain = fascore.flash_attention_score(query, key, value, scale=0.25)
    assert not np.array_equal(plain.attention_out, results[0].attention_out)


def test_dlse():
    dlse = random((B, N1, S1), seed=8)
    compare("f32", *run_both("f32", {"scale": 0.25}, problem(), dlse=dlse))


def test_drop_mask_equals_drawn():
    query, key, value, _ = problem()
    keep = fascore.dropout_keep((B, N1, S1, S2), 7, 0, 0.8)
    packed = np.packbits(keep.reshape(-1), bitorder="little")
    drawn = fascore.flash_attention_score(query, key, value, keep_prob=0.8, seed=7)
    given = fascore.flash_attention_score(query, key, value, keep_prob=0.8, drop_mask=packed)
    assert np.array_equal(drawn.attention_out, given.attention_out)


def test_dropout_bits_of_the_specification():
    # seed 2, offset 0, keep_prob 0.9: the worked example of the generator.
    keep = fascore.dropout_keep((1, 32), 2, 0, 0.9)
    assert "".join("1" if bit else "0" for bit in keep[0]) == "11111110111111110111111111111101"


def test_packed_sequences():
    lengths_q, lengths_kv = (5, 0, 9, 3), (7, 4, 9, 0)
    ends = {"actual_seq_qlen": np.cumsum(lengths_q), "actual_seq_kvlen": list(np.cumsum(lengths_kv))}
    query, dy = random((sum(lengths_q), N1, D)), random((sum(lengths_q), N1, DV), seed=3)
    key, value = random((sum(lengths_kv), N2, D), seed=1), random((sum(lengths_kv), N2, DV), seed=2)
    for order in ("", "same_as_input"):
        given = {"layout": "TND", "scale": 0.25, "rule": "causal_bottom_right", "softmax_layout": order, **ends}
        results = run_both("f32", given, (query, key, value, dy))
        assert results[0].softmax_max.shape == (sum(lengths_q), N1, 8)
        compare("f32", *results)
    rows, columns = slice(5, 14), slice(11, 20)
    alone = fascore.flash_attention_score(
        query[rows], key[columns], value[columns], layout="TND", scale=0.25, rule="causal_bottom_right",
        actual_seq_qlen=[9], actual_seq_kvlen=[9],
    )  # fmt: skip
    assert np.array_equal(alone.attention_out, results[0].attention_out[rows])


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_eight_bit(dtype):
    query, key, value, dy = (array.astype(dtype) for array in problem())
    for out_dtype, kind in ((0, np.float16), (1, ml_dtypes.bfloat16), ("f32", np.float32)):
        ours = fascore.flash_attention_score(query, key, value, scale=0.25, out_dtype=out_dtype)
        assert ours.attention_out.dtype == kind
        exact = fascore.golden.flash_attention_score(query, key, value, scale=0.25)
        # The weights are rounded to 8 bits (relative 2^-3 for e5m2) before the second product, in both; where a
        # weight sits on a rounding boundary ours and the exact one may fall to different sides.
        close(ours.attention_out, exact.attention_out, 2.0**-3, 0)
        gradient = fascore.flash_attention_score_grad(
            query, key, value, dy, ours.softmax_max, ours.softmax_sum, ours.attention_out, scale=0.25,
            out_dtype=out_dtype,
        )  # fmt: skip
        assert gradient.dq.dtype == kind


def test_any_strides_same_bits():
    arrays = problem()
    given = {"scale": 0.25}
    plain = fascore.flash_attention_score(*arrays[:3], **given)
    for choice in itertools.product((False, True), repeat=3):
        views = []
        for array, turned in zip(arrays, choice, strict=False):
            if turned:  # heads inside rows, columns reversed twice: negative strides on the way
                wide = np.empty((*array.transpose(0, 2, 1, 3).shape[:3], 2 * array.shape[3]), array.dtype)
                view = wide.transpose(0, 2, 1, 3)[..., ::-2]
                view[...] = array
                array = view
            views.append(array)
        assert np.array_equal(fascore.flash_attention_score(*views, **given).attention_out, plain.attention_out)


def test_out_is_written_in_place():
    query, key, value, dy = problem()
    fused = np.full((B, S1, 3, N1, DV), np.nan, np.float32)
    target = fused[:, :, 1].transpose(0, 2, 1, 3)
    saved = fascore.flash_attention_score(query, key, value, out={"attention_out": target})
    assert saved.attention_out is target
    plain = fascore.flash_attention_score(query, key, value)
    assert np.array_equal(target, plain.attention_out)
    assert np.isnan(fused[:, :, 0]).all() and np.isnan(fused[:, :, 2]).all()
    results = (saved.softmax_max, saved.softmax_sum, saved.attention_out)
    dk = np.full(key.shape, np.nan, np.float32)
    gradient = fascore.flash_attention_score_grad(query, key, value, dy, *results, want=["dk"], out={"dk": dk})
    assert gradient.dk is dk and gradient.dq is None and gradient.dv is None
    everything = fascore.flash_attention_score_grad(query, key, value, dy, *results)
    assert np.array_equal(dk, everything.dk)


def test_read_only_inputs_and_outputs():
    query, key, value, _ = problem()
    for array in (query, key, value):
        array.flags.writeable = False
    fascore.flash_attention_score(query, key, value)
    target = np.empty((B, N1, S1, DV), np.float32)
    target.flags.writeable = False
    with pytest.raises(ValueError, match=r"attention_out: .*writable"):
        fascore.flash_attention_score(query, key, value, out={"attention_out": target})


class Dlpack:
    """An array of a library fascore has never heard of."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_arrays():
    query, key, value, _ = problem()
    theirs = fascore.flash_attention_score(Dlpack(query), Dlpack(key), Dlpack(value))
    ours = fascore.flash_attention_score(query, key, value)
    assert np.array_equal(theirs.attention_out, ours.attention_out)


REFUSED = [
    (ValueError, r"^value: ", {"value": random((B, 3, S2, DV))}),
    (TypeError, r"^query: list, must be", {"query": [1.0]}),
    (TypeError, r"^query: dtype int32", {"query": np.zeros((B, N1, S1, D), np.int32)}),
    (TypeError, r"^query: dtype >f4", {"query": random((B, N1, S1, D)).astype(">f4")}),
    (TypeError, r"^key: dtype int64", {"key": np.zeros((B, N2, S2, D), np.int64)}),
    (ValueError, r"^layout: 'BDSN'", {"layout": "BDSN"}),
    (ValueError, r"^rule: 'causal'", {"rule": "causal"}),
    (TypeError, r"^scale: 'x'", {"scale": "x"}),
    (TypeError, r"^sparse_mode: 1.5", {"sparse_mode": 1.5}),
    (ValueError, r"^keep_prob: ", {"keep_prob": 0.0}),
    (ValueError, r"^window: \(1, 2, 3\)", {"window": (1, 2, 3)}),
    (ValueError, r"^window: given with rule", {"window": (1, 2), "rule": "causal_top_left"}),
    (ValueError, r"^query: absent", {"query": None}),
    (ValueError, r"^atten_mask: ", {"atten_mask": np.zeros((3, 3), bool)}),
    (ValueError, r"^isa: ", {"isa": "z80"}),
    (ValueError, r"^threads: -1", {"threads": -1}),
    (TypeError, r"^out: 'dq'", {"out": {"dq": None}}),
    (TypeError, r"^out: list, must be a mapping of attention_out", {"out": [np.zeros(3)]}),
    (TypeError, r"^out: ndarray, must be a mapping", {"out": np.zeros(3)}),
    (ValueError, r"^out_dtype: 5", {"out_dtype": 5}),
    (ValueError, r"^out_dtype: \[1\], must be 0", {"out_dtype": [1]}),
    (ValueError, r"^out_dtype: 1.0, must be 0", {"out_dtype": 1.0}),
    (TypeError, r"^window: 3, must be a sequence", {"window": 3}),
    (TypeError, r"^window: 'ab', must be a sequence", {"window": "ab"}),
    (TypeError, r"^window: 1.5, must be an integer", {"window": (1.5, 0)}),
    (ValueError, rf"^window: {2**70}, must be a 64-bit", {"window": (2**70, 0)}),
    (ValueError, rf"^prefix: {2**70}, must be a 64-bit", {"prefix": [2**70, 3]}),
    (TypeError, r"^prefix: 3, must be a sequence", {"prefix": 3}),
    (ValueError, rf"^actual_seq_qlen: {2**70}", {"actual_seq_qlen": [2**70]}),
    (ValueError, rf"^pre_tokens: {2**63}, must be a 64-bit", {"pre_tokens": 2**63}),
    (ValueError, rf"^sparse_mode: {2**40}, must be a 32-bit", {"sparse_mode": 2**40}),
    (ValueError, rf"^threads: {2**40}, must be a 32-bit", {"threads": 2**40}),
    (TypeError, r"^threads: 1.5, must be an integer", {"threads": 1.5}),
    (TypeError, r"^isa: None, must be a string", {"isa": None}),
    (TypeError, r"^seed: 1.0, must be an integer", {"seed": 1.0}),
    (
        TypeError,
        r"^query: a MaskedArray",
        {"query": np.ma.masked_array(random((B, N1, S1, D)), random((B, N1, S1, D)) > 0)},
    ),
    (TypeError, r"^pse: a MaskedArray", {"pse": np.ma.masked_array(random((S1, S2)), random((S1, S2)) > 0)}),
    (TypeError, "unexpected keyword", {"atten_msk": None}),
]


@pytest.mark.parametrize(("kind", "text", "change"), REFUSED, ids=[text for _, text, _ in REFUSED])
def test_refusals(kind, text, change):
    query, key, value, _ = problem()
    with pytest.raises(kind, match=text):
        fascore.flash_attention_score(**{"query": query, "key": key, "value": value, **change})


def test_equal_numbers_of_other_types_are_refused_after_the_right_ones():
    query, key, value, _ = problem()
    given = {"keep_prob": 0.5, "seed": 1, "window": (1, 2), "inner_precise": 1}
    fascore.flash_attention_score(query, key, value, **given)
    for name, change in (("seed", 1.0), ("window", (1.0, 2)), ("inner_precise", 1.0)):
        with pytest.raises(TypeError, match=f"^{name}: 1.0, must be an integer"):
            fascore.flash_attention_score(query, key, value, **{**given, name: change})


@pytest.mark.parametrize("head_num", [2**40, 3, 300])
@pytest.mark.parametrize("layout", ["BSH", "SBH"])
def test_head_counts_that_do_not_fit_are_refused_before_anything_is_allocated(layout, head_num):
    flat = np.zeros((2, 3, 8), np.float32)
    with pytest.raises(ValueError, match=f"^query: last axis is 8, must be a multiple of head_num {head_num} "):
        fascore.flash_attention_score(flat, flat, flat, layout=layout, head_num=head_num)
    with pytest.raises(ValueError, match="^query: "):
        fascore.flash_attention_score(*[flat[..., :0]] * 3, layout=layout, head_num=2**40)


def test_masked_arrays_without_a_masked_element_are_arrays():
    query, key, value, _ = problem()
    plain = fascore.flash_attention_score(query, key, value)
    wrapped = fascore.flash_attention_score(np.ma.masked_array(query), key, value)
    assert np.array_equal(wrapped.attention_out, plain.attention_out)


def test_the_reference_and_the_plan_refuse_unknown_keywords():
    query, key, value, dy = problem()
    golden = fascore.golden
    for call in (
        lambda: golden.flash_attention_score(query, key, value, rul="causal_top_left"),
        lambda: golden.flash_attention_score(query, key, value, want=["dq"]),
        lambda: golden.flash_attention_score(query, key, value, threads=2),
        lambda: golden.flash_attention_score_grad(query, key, value, dy, rul="causal_top_left"),
        lambda: fascore.plan("forward", query, key, value, rul="causal_top_left"),
        lambda: fascore.plan("forward", query, key, value, dlse=dy),
        lambda: fascore.plan("backward", query, key, value, dy, dy, dy, dy, rul="causal_top_left"),
    ):
        with pytest.raises(TypeError, match=r"unexpected keyword argument '(rul|want|threads|dlse)'"):
            call()


def test_plan_names_what_is_missing():
    query, key, value, _ = problem()
    with pytest.raises(TypeError, match="missing a required argument: 'value'"):
        fascore.plan("forward", query, key)
    assert fascore.plan("forward", query, key=key, value=value) == fascore.plan("forward", query, key, value)
    for text, given in (("threads: 1.5", {"threads": 1.5}), ("isa: None", {"isa": None})):
        with pytest.raises(TypeError, match=f"^{text}"):
            fascore.plan("forward", query, key, value, **given)


def test_dropout_keep_refusals():
    for kind, text, given in (
        (ValueError, r"^shape: \(\), must be", ((), 1)),
        (ValueError, r"^shape: \(-2, 3\), must be", ((-2, 3), 1)),
        (TypeError, r"^shape: 3, must be", (3, 1)),
        (TypeError, r"^seed: 1.5, must be", ((2, 3), 1.5)),
        (TypeError, r"^offset: None, must be", ((2, 3), 1, None)),
        (TypeError, r"^keep_prob: 'x', must be", ((2, 3), 1, 0, "x")),
    ):
        with pytest.raises(kind, match=text):
            fascore.dropout_keep(*given)


def test_gradient_refusals():
    query, key, value, dy = problem()
    saved = fascore.flash_attention_score(query, key, value)
    arrays = (query, key, value, dy, saved.softmax_max, saved.softmax_sum, saved.attention_out)
    with pytest.raises(ValueError, match="want: 'dsink' without sink"):
        fascore.flash_attention_score_grad(*arrays, want=["dsink"])
    for want in ("dq", 3):
        with pytest.raises(TypeError, match=f"^want: {want!r}, must be a sequence of names"):
            fascore.flash_attention_score_grad(*arrays, want=want)
    with pytest.raises(ValueError, match="want: 'dx'"):
        fascore.flash_attention_score_grad(*arrays, want=["dx"])
    with pytest.raises(ValueError, match="^dy: "):
        fascore.flash_attention_score_grad(query, key, value, dy[:, :2], *arrays[4:])


def test_wrapper_of_pypto():
    query, key, value, dy = (random((1, 8, 128, 64), "bf16", seed) for seed in range(4))
    saved = fascore.flash_attention_score(query, key, value, scale=0.125)
    arrays = (query, key, value, dy, saved.softmax_max, saved.softmax_sum, saved.attention_out)
    dq, dk, dv = fascore.flash_attention_score_grad_wrapper(*arrays, 0.125)
    exact = fascore.golden.flash_attention_score_grad(query, key, value, dy, scale=0.125)
    for ours, reference in zip((dq, dk, dv), exact[:3], strict=True):
        close(ours, reference, UNIT["bf16"], 9)
    for text, change, extra in (
        ("num_heads = 4", arrays, {"num_heads": 4}),
        ("head_dim = 32", arrays, {"head_dim": 32}),
        ("multiple of 128", tuple(a[:, :, :100] for a in arrays), {}),
        ("^key: ", (query, key[:, :, :64], *arrays[2:]), {}),
        ("^softmax_sum: ", (*arrays[:5], saved.softmax_sum[..., 0], arrays[6]), {}),
    ):
        with pytest.raises(ValueError, match=text):
            fascore.flash_attention_score_grad_wrapper(*change, 0.125, **extra)
    names = ("query", "key", "value", "dy", "softmax_max", "softmax_sum", "attention_out")
    for at, name in enumerate(names):
        for kind, other, text in ((ValueError, None, "absent"), (TypeError, [1.0], "list")):
            with pytest.raises(kind, match=f"^{name}: {text}, must be"):
                fascore.flash_attention_score_grad_wrapper(*arrays[:at], other, *arrays[at + 1 :], 0.125)


def test_threads_and_python_threads_give_the_same_bits():
    query, key, value, dy = (random((2, 4, 200, 32), "bf16", seed) for seed in range(4))
    one = fascore.flash_attention_score(query, key, value, threads=1)
    two = fascore.flash_attention_score(query, key, value, threads=2)
    assert one.attention_out.tobytes() == two.attention_out.tobytes()
    failures = []

    def work(seed):
        mine = [random((2, 4, 100 + seed, 32), "f32", seed + at) for at in range(4)]
        first = None
        for _ in range(20):
            saved = fascore.flash_attention_score(*mine[:3])
            gradient = fascore.flash_attention_score_grad(
                *mine, saved.softmax_max, saved.softmax_sum, saved.attention_out
            )
            bits = [array.tobytes() for array in (saved.attention_out, *gradient[:3])]
            if first is None:
                first = bits
            elif bits != first:
                failures.append(seed)
                return

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_the_interpreter_lock_is_released():
    query, key, value = (random((1, 8, 1500, 64), "f32", seed) for seed in range(3))
    ticks, running = 0, True

    def tick():
        nonlocal ticks
        while running:
            ticks += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        begin, before = time.perf_counter(), ticks
        fascore.flash_attention_score(query, key, value, threads=1)
        seconds, during = time.perf_counter() - begin, ticks - before
    finally:
        running = False
        ticker.join()
    # Held, not one tick would pass. A tick takes a millisecond and some scheduling; one in twenty is proof enough.
    assert during >= max(2, seconds * 1000 / 20)


LONG_CALL = """
import numpy as np, signal, sys, fascore
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may start with it ignored
q = np.zeros((1, 8, 60000, 64), np.float32)
print("ready", flush=True)
try:
    fascore.flash_attention_score(q, q, q, threads=1)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def test_ctrl_c_stops_a_long_call():
    child = subprocess.Popen([sys.executable, "-c", LONG_CALL], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    assert child.poll() is None
    os.kill(child.pid, signal.SIGINT)
    begin = time.perf_counter()
    rest, _ = child.communicate(timeout=120)
    assert rest == "stopped\n" and child.returncode == 0
    # Alone it would take about a minute; the margin is for a machine with other work.
    assert time.perf_counter() - begin < 30


def test_progress():
    query, key, value = (random((1, 2, 300, 32), "f32", seed) for seed in range(3))
    seen = []
    fascore.flash_attention_score(query, key, value, progress=lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][0] == seen[-1][1] > 0

    def stop(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fascore.flash_attention_score(query, key, value, progress=stop)
    pytest.importorskip("tqdm")
    fascore.flash_attention_score(query, key, value, progress=True)


def test_memory_is_flat():
    query, key, value, dy = (random((1, 2, 96, 32), "f32", seed) for seed in range(4))

    def round_trip():
        saved = fascore.flash_attention_score(query, key, value, threads=1)
        fascore.flash_attention_score_grad(query, key, value, dy, *saved[1:], saved[0], threads=1)
        with pytest.raises(ValueError, match="key"):
            fascore.flash_attention_score(query, key[:, :1], value)

    for _ in range(200):
        round_trip()
    before = resident()
    for _ in range(1000):
        round_trip()
    # One leaked output a call would be 24 KiB * 1000 = 24 MiB.
    assert resident() - before < 4 << 20


def resident():
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def test_plan_and_info():
    query, key, value, _ = problem()
    about = fascore.plan("forward", query, key, value, rule="causal_top_left")
    assert (about["S1"], about["S2"], about["dtype"]) == (S1, S2, "f32")
    assert about["visible_pairs"] == B * N1 * sum(range(1, S1 + 1))
    assert fascore.info()["isa"] in [name for name, _, _ in fascore.info()["isas"]]


def test_empty_tensors():
    for shape_q, shape_k in (((0, 2, 3, 4), (0, 2, 5, 4)), ((1, 2, 0, 4), (1, 2, 5, 4)), ((1, 2, 3, 4), (1, 2, 0, 4))):
        query, key = np.ones(shape_q, np.float32), np.ones(shape_k, np.float32)
        saved = fascore.flash_attention_score(query, key, key)
        assert saved.attention_out.shape == shape_q and not saved.attention_out.any()
        gradient = fascore.flash_attention_score_grad(query, key, key, query, *saved[1:], saved[0])
        assert not any(array.any() for array in gradient[:3])
