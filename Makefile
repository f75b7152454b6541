# What people run. Each target is safe to repeat and goes on after an interruption.
CLUSTER ?= lab
MUSTER := .venv/bin/muster

.DEFAULT_GOAL := help
.PHONY: help setup up down test unit lint soak bench docs

help: ## Say what there is to run
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  CLUSTER=NAME picks clusters/NAME.yaml for up and down (now: $(CLUSTER))"

setup: ## Install what is missing and make the Python environment in .venv
	@./setup

up: ## Stand the cluster up, examine and certify every node, write the report
	@./setup --lab
	@$(MUSTER) up $(CLUSTER)

down: ## Remove everything that `make up` made, but for caches
	@./setup
	@$(MUSTER) down $(CLUSTER)

lint: ## Check style, types, roles, scripts and the direction of imports
	@./setup --train
	@.ci/lint

unit: ## Run the tests that need no lab
	@./setup --train
	@.venv/bin/pytest -m "not lab and not vm and not soak"

test: ## Run every test but the soak tests; the lab is stood up and taken down by itself
	@./setup --lab --train
	@.ci/lint
	@.venv/bin/pytest

soak: ## Run the long tests that `make test` leaves out
	@./setup --lab --train
	@.venv/bin/pytest -m soak

bench: CLUSTER = lab-containers
bench: ## Run the benchmarks, two of them on the standing lab-containers or CLUSTER; each prints a ratio
	@./setup --lab --train
	@.venv/bin/python benchmarks/suite_vs_testinfra_ssh.py --spec clusters/$(CLUSTER).yaml --node gpu-0 \
		--config "$$(.venv/bin/muster where --ssh-config --stack $(CLUSTER))"
	@.venv/bin/python benchmarks/converge_vs_stock_ansible.py $(CLUSTER)
	@.venv/bin/python benchmarks/plan_1024.py
	@.venv/bin/python benchmarks/preview_1024.py
	@.venv/bin/python benchmarks/checkpoint_throughput.py
	@.venv/bin/python benchmarks/checkpoint_stall.py
	@.venv/bin/python benchmarks/telemetry_overhead.py
	@.venv/bin/python benchmarks/diagnose_vs_ripgrep.py

docs: setup ## Write the parts of docs/ that come from the code
	@.venv/bin/python docs/generate.py
