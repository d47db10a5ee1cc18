# Each command does its own set-up, says what it does, and ends with what it
# has shown. "make" alone lists them.

# Works in a checkout that another user owns.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# A server that is missing is a failure here; "go test" alone leaves out what needs it.
export FENCEKIT_TESTS := all

# A net for what hangs, far from what the slowest machine needs.
# "make lint" vets.
test = FENCEKIT_ETCD_BINARY=$(CURDIR)/bin/etcd go test -count=1 -vet=off -timeout 90m
# The etcd that tests and programs start; these find it beside themselves.
etcd = scripts/build -C internal/test/testenv/cmd/etcd -o $(CURDIR)/bin/etcd .
# How many packages are tested at a time. Their tests mostly wait, for servers to start
# and for leases to expire.
packages = $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
# The packages that take longest begin first, so that none of them runs alone at the end.
longest = ./storage/postgres ./internal/test/... ./internal/fencectl ./chaos ./examples/... ./fence/etcd
# Beside that on this machine; scripts/build-images knows where Debian has them.
postgres_versions = 17 18
# What RACE=1 runs under the race detector: the packages whose goroutines share memory.
raced = ./fence/... ./guard/... ./guardsql ./jobs ./storage/... ./chaos/internal/...
# Every process of the race detector sleeps for a second at its end, and chaos ends
# hundreds of worker processes. All of their goroutines have been waited for by then.
export GORACE := atexit_sleep_ms=0 $(GORACE)

# Modules of their own, so that a user of Fencekit doesn't get what they need.
nested = $(dir $(wildcard */go.mod */*/go.mod internal/test/*/go.mod internal/test/testenv/cmd/etcd/go.mod))

# Of tests that only "make test-kubernetes" and "make test-docker" run. "make lint" checks them too.
tags = apiserver,docker

staticcheck = honnef.co/go/tools/cmd/staticcheck@v0.8.2
actionlint = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
govulncheck = golang.org/x/vuln/cmd/govulncheck@v1.9.0
goreleaser = github.com/goreleaser/goreleaser/v2@v2.15.1

# What services import.
library = . ./audit/... ./fence/... ./guard... ./jobs ./storage/...

# Servers that tests start keep their files in memory, where the machine has room.
inmemory = env $(shell scripts/memory-tmp)

# Where what chaos runs leave goes.
CHAOS = chaos-runs/$(shell date +%Y%m%d-%H%M%S)
CHAOS_LONG = chaos-runs/long-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: help demo unit test test-docker test-kubernetes chaos chaos-long soak bench mutants nightly lint cross api vulncheck snapshot images setup setup-test clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: check-go ## run the inventory example with a real etcd and Postgres, and watch a stale holder being rejected
	@scripts/setup-postgres
	@$(etcd)
	@scripts/build -o bin/ ./examples/inventory
	@bin/inventory demo

unit: check-go ## run the tests that need no server, and those of the documentation
	go test $$(scripts/unit-packages)
	go test -run 'Docs|Readme' .
	@echo "The tests that need no server passed. \"make test\" runs all."

test: setup-test ## run all tests against a real etcd and Postgres, both started here; RACE=1 with the race detector where goroutines share memory, which needs a C compiler
	@$(etcd)
ifdef RACE
	$(inmemory) $(test) -race -p $(packages) $(raced)
	for module in $(filter fence/%,$(nested)); do (cd $$module && $(inmemory) $(test) -race ./...) || exit 1; done
	$(inmemory) $(test) -p $(packages) $$(go list ./... | grep -vxF "$$(go list $(raced))")
else
	$(inmemory) $(test) -p $(packages) $(longest) ./...
endif
	for module in $(filter-out $(if $(RACE),fence/%),$(nested)); do (cd $$module && $(inmemory) $(test) ./...) || exit 1; done
	@echo "All tests passed against a real etcd and a real Postgres$(if $(RACE),$(comma) those of fence$(comma) guard$(comma) storage and chaos with the race detector)."

test-docker: setup-test ## run the tests of the store against Postgres in Docker, with the lock's and the runbooks' in images with PostgreSQL 17 and 18, and the compose file; RUN=regexp for some of the store's
	@$(etcd)
	@scripts/build-images etcd 15 $(postgres_versions)
	@docker compose version >/dev/null 2>&1 || scripts/setup-tool docker-compose docker-compose
	FENCEKIT_POSTGRES=docker FENCEKIT_POSTGRES_DSN= $(test) $(if $(RUN),-run '$(RUN)') ./storage/postgres
	FENCEKIT_POSTGRES=docker FENCEKIT_POSTGRES_DSN= $(test) ./internal/test/testenv ./internal/test/testenv/pgserver
	cd internal/test/deploy && $(test) -tags docker -run 'Compose|Quickstart' .
	for version in $(postgres_versions); do \
		CGO_ENABLED=0 $(test) -p 1 -exec "$(CURDIR)/scripts/in-image fencekit/postgres:$$version" ./storage/postgres ./fence/pglock ./internal/test/e2e || exit 1; \
	done
	@echo "The tests of the store and of the test environment passed against Postgres in Docker, those of the store, its locks and the runbooks with PostgreSQL $(postgres_versions), and the compose file and the quickstart work."

test-kubernetes: setup-test ## run the locks on Leases, and apply the manifests and those of another version over them, with a real Kubernetes API server; the first time builds one, which takes minutes
	@$(etcd)
	@scripts/build -C internal/test/testenv/cmd/kube-apiserver -o $(CURDIR)/bin/kube-apiserver .
	for module in fence/k8slock deploy/kubernetes; do \
		(cd $$module && FENCEKIT_KUBE_APISERVER_BINARY=$(CURDIR)/bin/kube-apiserver $(inmemory) $(test) -tags apiserver ./...) || exit 1; \
	done
	@echo "Locks hold on a real Kubernetes API server, and it takes each version of the manifests after the other."

soak: setup ## explore the protocol within larger bounds, run 2,000 random schedules, and write and prune 10 million entries
	go test -timeout 1h -run '^$$' -bench LargerBounds -benchtime 1x ./internal/test/model
	go test -count=1 -v -timeout 3h -run TestSchedules ./storage/postgres -rapid.checks=2000 -rapid.seed=0
	go test -count=1 -v -timeout 3h -run TestRetention ./internal/test/e2e -args -entries 10000000
	@echo "2,000 schedules: no update was lost. 10 million entries were pruned, and the tables stayed as large as after the first three."

chaos: setup-test ## run scenarios and controls with one seed, and go on with others for 5 minutes in all
	@$(etcd)
	@scripts/build -o bin/ ./cmd/fencectl-chaos
	bin/fencectl-chaos run --duration 5m --parallel 2 --out $(CHAOS)

chaos-long: setup-test ## run 100 seeds of each family, and 20 of scripts and controls
	@$(etcd)
	@scripts/build -o bin/ ./cmd/fencectl-chaos
	bin/fencectl-chaos run --seeds 100 --script-seeds 20 --parallel 3 --out $(CHAOS_LONG)

bench: setup-test ## compare with bare transactions and other locks, interleaved; RUN=regexp for some, ROUNDS=7, SECONDS=1 for each
	@$(etcd)
	@scripts/build -C internal/test/bench -o $(CURDIR)/bin/bench .
	bin/bench $(if $(RUN),-run '$(RUN)') $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(SECONDS),-seconds $(SECONDS)) $(if $(OUT),-out $(OUT))

mutants: setup-test ## break Fencekit in one place at a time, and show which test notices each; RUN=regexp for some
	@$(etcd)
	FENCEKIT_ETCD_BINARY=$(CURDIR)/bin/etcd $(inmemory) go run ./internal/test/mutants/cmd $(if $(RUN),-run '$(RUN)')

nightly: setup-test ## run all that takes long, and keep what it says in nightly/COMMIT; again goes on where it was interrupted
	@scripts/nightly

lint: check-go ## check the format, go vet, staticcheck, GitHub's workflows, and that no large or built file is tracked
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	@scripts/check-files
	for module in . $(nested); do (cd $$module && go vet -tags $(tags) ./... && go run $(staticcheck) -tags $(tags) ./...) || exit 1; done
	go run $(actionlint)
	@echo "Formatted, and go vet, staticcheck and actionlint find nothing."

cross: check-go ## build the library and the commands for macOS and Windows
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build $(library) ./cmd/...
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 go build $(library) ./cmd/fencectl
	@echo "The library and the commands build for macOS and Windows, fencectl-chaos for macOS."

api: check-go ## list what has changed in the exported API since the last release
	@scripts/api

vulncheck: check-go ## look for known vulnerabilities in what is linked; asks the Go vulnerability database
	go run $(govulncheck) ./...

snapshot: check-go ## build what a release publishes, but the images, in dist
	go run $(goreleaser) check
	go run $(goreleaser) release --snapshot --clean --skip=publish,docker$(if $(shell command -v syft),,$(comma)sbom)

images: check-go ## build the images that tests use in Docker, where none can be pulled
	@scripts/build-images

setup: check-go ## find a Postgres, or install one as root on Debian
	@scripts/setup-postgres

setup-test: setup ## find what only tests need, or install it as root on Debian: Postgres's own files, PgBouncer, Patroni, HAProxy, Redis, ZooKeeper, psycopg for Python
	@FENCEKIT_POSTGRES_DSN= FENCEKIT_POSTGRES=local scripts/setup-postgres
	@scripts/setup-tool pgbouncer pgbouncer
	@scripts/setup-tool patroni 'patroni python3-psycopg2' patroni
	@scripts/setup-tool haproxy haproxy haproxy
	@scripts/setup-tool redis-server redis-server redis-server
	@scripts/setup-tool /usr/share/zookeeper/bin/zkServer.sh 'zookeeper default-jre-headless'
	@scripts/setup-python
	@scripts/setup-tool curl curl

.PHONY: check-go
check-go:
	@scripts/check-go

clean: ## remove what was built here, and what chaos, benchmarks and nightly runs have left
	rm -rf bin dist chaos-runs bench-runs internal/test/bench/bench-runs nightly .fencekit fencectl fencectl-chaos inventory kube-apiserver quickstart
	find . -name .git -prune -o -type f \( -name '*.test' -o -name '*.out' -o -name '*.prof' -o -name '*.exe' \) -exec rm -f {} +

comma := ,
