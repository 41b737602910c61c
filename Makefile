# SPDX-License-Identifier: MIT OR Apache-2.0
# Thin: every target is a script, and every script does its own set-up.

.PHONY: help setup build check test lint bench fuzz soak mutants demo experiments vm install
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: ## the main job: four sites of an Apache, without and with reservations (QUICK=1, SERVER=nginx or four, DRIVER=stock)
	@scripts/setup build demo $(if $(filter stock,$(DRIVER)),,test)
	@scripts/build
	@QUICK='$(QUICK)' SERVER='$(SERVER)' DRIVER='$(DRIVER)' demo/run

build: ## reserv and reservd into target/release
	@scripts/build

check: ## unit and property tests: fast, no root (CHANGED=1: every suite that the changes can affect)
	@CHANGED='$(CHANGED)' scripts/check

test: ## everything: unit, this machine, the guest (root; TESTS_ARGS='guest-smoke' chooses)
	@scripts/test $(TESTS_ARGS)

lint: ## format, clippy, shell scripts
	@scripts/lint

bench: ## the benchmarks, each beside its baseline; raw numbers into out/ (BENCH=switch: only that)
	@scripts/bench $(BENCH)

fuzz: ## the parsers and the name space for long (FUZZ_SECONDS=600)
	@scripts/fuzz

experiments: ## the papers' figures, ours beside the kernel's scheduler, into out/ (NAME='Q-F5a Q-T4', QUICK=1; hours in all)
	@scripts/setup build test
	@scripts/build
	@experiments/run $(or $(NAME),all) $(if $(QUICK),--quick) $(if $(OUT),--out $(OUT))

soak: ## the long tests: the core's theorems (SOAK_SECONDS=900 each), then the guest (TESTS_ARGS='core e2e_*' chooses; it resumes, AGAIN=1 starts over)
	@AGAIN='$(AGAIN)' scripts/soak $(TESTS_ARGS)

mutants: ## faults of tests/mutants, each must be caught (NAME='bpf-net unit-*'; it resumes)
	@scripts/setup build test
	@scripts/mutants $(NAME)

vm: ## a shell command in the guest: make vm RUN='uname -a'
	@scripts/setup test
	@vm/run $(VM_ARGS) -- sh -c '$(or $(RUN),uname -a)'

setup: ## what building and testing needs, installed with apt
	@scripts/setup build test lint

install: ## into PREFIX=/usr/local (after make build)
	@scripts/install
