# SPDX-License-Identifier: Apache-2.0
"""Memory of results above 32 MiB (bindings/python/src/memory.h): taken again, never more than was once in use."""

import numpy as np
import pytest

import fascore
from fascore import _arrays, _core

LENGTH = 9 << 20  # f32: 36 MiB, above the threshold


@pytest.fixture(autouse=True)
def _nothing_kept():
    fascore.empty_cache()
    yield
    fascore.empty_cache()


def test_a_freed_block_is_taken_again():
    array = _arrays.empty(np.empty(0), (LENGTH,), "f32")
    array[:] = 1
    address = array.ctypes.data
    view = array[3:]
    del array
    assert _core.kept_bytes() == 0  # a view still holds it
    del view
    assert _core.kept_bytes() >= 4 * LENGTH
    again = _arrays.empty(np.empty(0), (LENGTH,), "f32")
    assert again.ctypes.data == address and again.flags.writeable and again.flags.c_contiguous
    assert _core.kept_bytes() == 0


def test_another_size_frees_what_is_kept():
    _arrays.empty(np.empty(0), (LENGTH,), "f32")
    assert _core.kept_bytes() > 0
    other = _arrays.empty(np.empty(0), (2 * LENGTH,), "f32")
    assert _core.kept_bytes() == 0
    del other
    fascore.empty_cache()
    assert _core.kept_bytes() == 0


def test_short_results_are_not_kept():
    _arrays.empty(np.empty(0), (1 << 20,), "f32")
    assert _core.kept_bytes() == 0


def test_gradient_of_a_mask_takes_its_memory_again():
    torch = pytest.importorskip("torch")
    attention = pytest.importorskip("fascore.torch").scaled_dot_product_attention
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 3008, 8).requires_grad_() for _ in range(3))
    mask = torch.randn(1, 1, 3008, 3008).requires_grad_()
    attention(query, key, value, mask).sum().backward()
    address, first = mask.grad.data_ptr(), mask.grad.clone()
    mask.grad = None
    assert _core.kept_bytes() >= first.nbytes
    attention(query, key, value, mask).sum().backward()
    assert mask.grad.data_ptr() == address
    assert torch.equal(mask.grad, first)


def test_heads_in_rows_keep_their_strides():
    torch = pytest.importorskip("torch")
    attention = pytest.importorskip("fascore.torch").attention
    query = torch.randn(1, 80, 2, 65536).transpose(1, 2)[..., :64]  # 64 of each row; heads in rows
    wide = torch.randn(1, 70000, 2, 64).transpose(1, 2)
    out = attention(wide, query, query)
    assert out.nbytes > 32 << 20 and out.stride() == wide.stride()
    few = attention(wide[:, :, :100], query, query)
    assert torch.allclose(out[:, :, :100], few, rtol=1e-5, atol=1e-6)
