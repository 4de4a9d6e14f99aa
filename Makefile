# SPDX-License-Identifier: Apache-2.0
#
# The front door. Each goal installs what it lacks, says what it does, and does nothing twice; the work itself is in
# CMakePresets.json and scripts/.
.NOTPARALLEL:
.DEFAULT_GOAL := help
SHELL := /bin/bash

JOBS ?= $(shell nproc)

help: ## this list
	@echo "fascore: make <goal>"
	@sed -n 's/^\([a-z][a-z0-9_-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

deps: ## install the Debian packages a build and its tests need
	@scripts/install_deps.sh test

# Configure once a preset; afterwards ninja itself notices when CMake files change.
build/%/build.ninja: CMakePresets.json
	@echo "== configure $*"
	@cmake --preset $* --log-level=WARNING >/dev/null
	@touch $@

build: ## the release build; leaves the program at build/fascore
	@scripts/install_deps.sh test
	@$(MAKE) --no-print-directory build/release/build.ninja
	@echo "== build release: library, program, examples ($(JOBS) jobs)"
	@cmake --build --preset release -j $(JOBS) --target fascore_programs
	@ln -sfn release/bin/fascore build/fascore

demo: build ## build, then show it working on real input (under three minutes on 2 cores)
	@scripts/demo.sh

test: build ## every test of the release build, proofs and emulation included
	@echo "== build release: tests ($(JOBS) jobs)"
	@cmake --build --preset release -j $(JOBS)
	@echo "== test release"
	@ctest --preset release -j $(JOBS)
	@echo "== test python"
	@scripts/python_tests.sh

python: ## .venv with fascore for Python, NumPy and a CPU build of PyTorch
	@scripts/install_deps.sh python
	@scripts/python_env.sh

bench: build ## the standard benchmark suite
	@echo "== bench/suites/standard.txt"
	@build/fascore bench bench/suites/standard.txt

asan: deps ## unit tests and a sample of the rest under the address and undefined behaviour sanitizers
	@$(call workflow,asan-ubsan,asan-ubsan)

asan-full: deps ## every test under the address and undefined behaviour sanitizers
	@$(call workflow,asan-ubsan,asan-ubsan-full)

tsan: deps ## a sample of the threaded tests under the thread sanitizer
	@$(call workflow,tsan,tsan)

tsan-full: deps ## every threaded test under the thread sanitizer
	@$(call workflow,tsan,tsan-full)

baseline: deps ## the tests of a build with the portable kernels alone
	@$(call workflow,baseline-only,baseline-only)

coverage: deps ## the tests with line counts (gcov files in build/coverage)
	@$(call workflow,coverage,coverage)

emulate: build ## the tests on emulated CPUs: one without AVX, one with AVX2
	@echo "== build release: tests ($(JOBS) jobs)"
	@cmake --build --preset release -j $(JOBS)
	@echo "== emulated CPUs"
	@ctest --preset release -j $(JOBS) -L emulate

aarch64: ## cross build for AArch64 and its unit tests under qemu
	@scripts/install_deps.sh ci
	@$(call workflow,aarch64-cross,aarch64-cross)

tidy: ## clang-tidy over everything
	@scripts/install_deps.sh ci
	@$(MAKE) --no-print-directory build/tidy/build.ninja
	@echo "== clang-tidy"
	@cmake --build --preset tidy -j $(JOBS)

format: ## rewrite sources by .clang-format
	@scripts/install_deps.sh ci
	@scripts/format.sh

lint: ## formatting, include rules, python
	@scripts/install_deps.sh ci
	@scripts/lint.sh

clean: ## remove build/
	rm -rf build

# workflow(configure preset, preset of build and test)
define workflow
$(MAKE) --no-print-directory build/$(1)/build.ninja && \
echo "== build $(2) ($(JOBS) jobs)" && cmake --build --preset $(2) -j $(JOBS) && \
echo "== test $(2)" && ctest --preset $(2) -j $(JOBS)
endef

.PHONY: help deps build demo test python bench asan asan-full tsan tsan-full baseline coverage emulate aarch64 tidy format lint clean
