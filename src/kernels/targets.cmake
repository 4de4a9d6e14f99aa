# SPDX-License-Identifier: Apache-2.0
#
# The one list of instruction sets, best first: fascore_isa(<name> <processor> <flags...>). Each compiles
# isa/<name>.cpp, alone, with its flags. Adding one is a row here, a vocabulary header in simd/ and a short file in isa/
# (docs/adding-an-isa.md). Never -march=native: what we ship does not depend on the machine that built it.
#
#         name          processor   flags
fascore_isa(avx512_bf16 x86_64      -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx2 -mfma -mf16c)
fascore_isa(avx512      x86_64      -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c)
fascore_isa(avx2        x86_64      -mavx2 -mfma -mf16c)
fascore_isa(neon        aarch64     )
fascore_isa(baseline    any         )
