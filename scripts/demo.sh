#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows fascore at work, on real input, in under three minutes on two cores. `make demo` builds, then runs this.
#
#   scripts/demo.sh [BUILD_DIR]          default build/release; DEMO_SECONDS: of training, default 65
#
#   1  the operator's test levels        is it right?
#   2  a transformer trained from zero   does it train? (reads this repository's own text)
#   3  that model's attention, captured  is it right on real numbers?
#   4  a short benchmark                 how fast, beside what this machine's arithmetic could do at most?
#
# Leaves its files in demo/, replaced on every run. Stops at the first step that fails, with its status.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build/release}
seconds=${DEMO_SECONDS:-65}
out=demo
fascore=$build/bin/fascore
char_lm=$build/bin/char_lm
for program in "$fascore" "$char_lm"; do
    if [[ ! -x $program ]]; then
        echo "demo: $program: not there; run 'make build' first" >&2
        exit 2
    fi
done
mkdir -p "$out"
rm -f "$out"/{loss.svg,attention.safetensors,gradients.safetensors,check.txt,verify.txt,bench.txt,training.txt}

if [[ -t 1 ]]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi
started=$SECONDS
step() { printf '\n%s── %s %s\n\n' "$bold" "$*" "$plain"; }
# Shows the command, runs it. With `kept FILE command…` what it prints stays in FILE too.
show() { printf '%s$ %s%s\n' "$dim" "$*" "$plain"; }
run() { show "$@"; "$@"; }
kept() {
    local file=$1
    shift
    show "$@"
    "$@" | tee "$file"
}

step "1/4  Is it right? The operator's test levels 0, 1 and 2, against a float64 reference"
for level in 0 1 2; do kept "$out/check.$level" "$fascore" check "$level"; done
cat "$out"/check.[012] > "$out/check.txt"
rm "$out"/check.[012]

step "2/4  Does it train? A transformer, from zero, on this repository's own text: about $seconds s"
# Not through a pipe: the progress bar wants the terminal.
texts=()
for path in README.md docs include src examples tools; do [[ -e $path ]] && texts+=("$path"); done
# Threads that wait sleep: spinning ones would take the cores from other programs, and from each other when those run.
run env OMP_WAIT_POLICY=passive "$char_lm" "${texts[@]}" --seconds "$seconds" --prompt '// The ' \
    --svg "$out/loss.svg" --capture "$out/attention.safetensors" --summary "$out/training.txt"

step "3/4  Is it right on real numbers? The query, key, value and dy of that model's second block"
trained() { sed -n "s/^$1 //p" "$out/training.txt"; }
rule=(--scale "$(trained scale)" --causal=top-left)
run "$fascore" grad "$out/attention.safetensors" "${rule[@]}" -o "$out/gradients.safetensors"
echo
kept "$out/verify.txt" "$fascore" verify "$out/attention.safetensors" "$out/gradients.safetensors" "${rule[@]}"

step "4/4  How fast? Beside the peak of this machine's arithmetic, measured in the same run"
kept "$out/bench.txt" "$fascore" bench bench/suites/demo.txt

step "Summary, after $((SECONDS - started)) s"
printf '  %-11s %s\n' \
    'levels' "$(grep -c 'PRECISION_PASS' "$out/check.txt") of 3 passed" \
    'training' "$(trained curve)  loss $(trained first_loss) → $(trained last_loss) in $(trained steps) steps," \
    '' "on text it never saw $(trained first_unseen_loss) → $(trained last_unseen_loss)" \
    'real input' 'gradients as exact as the table above says' \
    'speed' 'share of peak in the last table' \
    'files' "$out/loss.svg               loss curve" \
    '' "$out/attention.safetensors  query, key, value, dy, softmax_max, softmax_sum, attention_out" \
    '' "$out/gradients.safetensors  dq, dk, dv" \
    '' "$out/check.txt, training.txt, verify.txt, bench.txt"
