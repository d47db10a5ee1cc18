package scenario

import (
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// All are the scenarios, in the order in which they run.
func All() []Scenario {
	return slices.Concat(
		[]Scenario{distinct(1), distinct(8), groups, reads, hot(1, 64), hot(4, 16)},
		[]Scenario{free(1, 1, 1.3), free(64, 1.2, 2), contended(4, 8, 10), contended(8, 5, 8), contended(64, 2, 4)},
		[]Scenario{several(1, 0.6, 0.8), several(5, 0.5, 0.7), several(20, 0.4, 0.6)},
		[]Scenario{first, memory, snapshot, history, prune, anchors, protect},
	)
}

// The contenders, as scenarios name them.
var (
	bare, guardDo, batch, batchAlone = contender.Bare, contender.Do, contender.Batch, contender.BatchAlone
	forUpdate, mutex, locker         = contender.ForUpdate, contender.Mutex, contender.Locker
)

// perOperation is what an operation costs.
var perOperation = []result.Metric{
	result.P50, result.P99, result.ClientCPU, result.PostgresCPU, result.WAL, result.Writes, result.WrittenBytes, result.Allocations, result.AllocatedB,
}

// direct are the regimes without added latency.
var direct = []result.Regime{disk, tmpfs}

// here are bounds where no latency is added, on both places; everywhere those in all regimes.
func here(least, aim float64) map[result.Regime]Bound {
	return map[result.Regime]Bound{disk: {least, aim}, tmpfs: {least, aim}}
}

func everywhere(least, aim float64) map[result.Regime]Bound {
	return map[result.Regime]Bound{disk: {least, aim}, diskSlow: {least, aim}, tmpfs: {least, aim}, tmpfsSlow: {least, aim}}
}

// rate is a Must about a contender's rate, beside the baseline's or that of others.
func rate(row string, c contender.Contender, bounds map[result.Regime]Bound, baseline ...contender.Contender) Must {
	return Must{Row: row, Contender: c.Name, Baseline: contender.Names(baseline...), Metric: result.Rate, Compared: AsRatio, Bounds: bounds}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func distinct(connections int) Scenario {
	s := Scenario{
		Name:       fmt.Sprintf("do/%d", connections),
		Title:      "guard.Do on distinct resources, kept, " + counted(connections, "connection", "connections"),
		About:      "Each goroutine reads and writes a row of its own, over a connection of its own; the process owns the resource already. What compares, counts and records a token in two tables, and no more, is the bound of what keeps a fence and a history. One atomic UPDATE does without reading and deciding, which not every operation can.",
		Contenders: []contender.Contender{bare, guardDo, batchAlone, contender.OwnFence, contender.AtomicUpdate},
		Baseline:   []string{bare.Name},
		Goroutines: connections, Keys: load.Distinct, Metrics: perOperation,
	}
	if connections == 1 {
		s.Musts = []Must{
			{Row: "allocations of guard.Do beside those of the bare transaction", Contender: guardDo.Name, Metric: result.Allocations, Compared: AsDifference, AtMost: true, Bounds: here(60, 30)},
			{Row: "their bytes", Contender: guardDo.Name, Metric: result.AllocatedB, Compared: AsDifference, AtMost: true, Bounds: here(5<<10, 3<<10)},
		}
		return s
	}
	s.Musts = []Must{
		rate("guard.Do, distinct keys, 8 connections, kept", guardDo, map[result.Regime]Bound{disk: {0.62, 0.85}, diskSlow: {0.95, 1.15}, tmpfs: {0.45, 0.6}, tmpfsSlow: {0.9, 1.15}}),
		rate("batch form, one operation a transaction, 8 connections", batchAlone, map[result.Regime]Bound{disk: {0.9, 1.2}, diskSlow: {1.3, 1.6}}),
	}
	return s
}

var groups = func() Scenario {
	best := bare.Pools(4, 8, 16, 32, 64)
	return Scenario{
		Name: "groups", Title: "Distinct resources, kept, 64 goroutines",
		About:      "As above, with 64 goroutines. Batches share transactions; the bare transaction is given several numbers of connections, and compared at its best.",
		Contenders: append(slices.Clone(best), guardDo, batch, contender.AtomicUpdate),
		Baseline:   contender.Names(best...),
		Goroutines: 64, Connections: 8, Keys: load.Distinct, Metrics: perOperation,
		Musts: []Must{rate("batch form, distinct keys, 64 goroutines, against bare at its best number of connections", batch, here(1.5, 4))},
	}
}()

var reads = Scenario{
	Name: "read/8", Title: "Reads on distinct resources, kept, 8 connections",
	About:      "Each goroutine reads a row of its own, over a connection of its own; the process owns the resource already. Without ReadOnly the same function moves the fence and adds an entry to the history.",
	Contenders: []contender.Contender{contender.BareRead, contender.DoRead, contender.BatchRead, contender.DoReadSealed},
	Baseline:   []string{contender.BareRead.Name},
	Goroutines: 8, Keys: load.Distinct, Reads: true, Metrics: perOperation,
}

func hot(processes, goroutines int) Scenario {
	pools := []int{2, 8}
	if processes > 1 {
		pools = []int{1, 2}
	}
	best := forUpdate.Pools(pools...)
	s := Scenario{
		Name:  fmt.Sprintf("hot/%dx%d", processes, goroutines),
		Title: fmt.Sprintf("One hot SKU, %s of %d goroutines", counted(processes, "process", "processes"), goroutines),
		About: "All read and write the same row. A goroutine has a connection unless the name says otherwise; SELECT FOR UPDATE is also given fewer, and is compared with at its best.",
		Contenders: slices.Concat([]contender.Contender{forUpdate}, best, []contender.Contender{
			guardDo, batch, contender.AtomicUpdate, contender.AdvisoryLock, contender.Optimistic, contender.Serializable,
			contender.MutexTx, contender.RedsyncTx, contender.SetNX1Tx, contender.SetNX50Tx,
		}),
		Baseline:  append([]string{forUpdate.Name}, contender.Names(best...)...),
		Processes: processes, Goroutines: goroutines, Keys: load.Hot,
		Metrics: append([]result.Metric{result.FairShare, result.Retries, result.EtcdCPU}, perOperation...),
	}
	what, bounds := fmt.Sprintf("hot SKU, %s × %d, batch form", counted(processes, "process", "processes"), goroutines), here(19, 50)
	if processes > 1 {
		bounds = here(8, 20)
	}
	s.Musts = []Must{
		rate(what+", against SELECT FOR UPDATE at the same concurrency", batch, bounds, forUpdate),
		rate("same, against SELECT FOR UPDATE at its best", batch, bounds),
	}
	if processes == 1 {
		s.Musts = append(s.Musts, rate(what+", against lock + transaction + unlock with etcd's Mutex", batch, here(70, 150), contender.MutexTx))
	}
	return s
}

func free(goroutines int, least, aim float64) Scenario {
	return Scenario{
		Name:       fmt.Sprintf("lock/free/%d", goroutines),
		Title:      "Uncontended acquire and release, " + counted(goroutines, "goroutine", "goroutines"),
		About:      "Each goroutine acquires and releases a lock that no other uses.",
		Contenders: []contender.Contender{mutex, locker, contender.PgLocker},
		Baseline:   []string{mutex.Name},
		Goroutines: goroutines, Keys: load.Distinct, Locks: true,
		Metrics: []result.Metric{result.P50, result.P99, result.ClientCPU, result.EtcdCPU, result.PostgresCPU, result.Writes, result.WrittenBytes, result.Allocations},
		Musts:   []Must{rate("uncontended acquire and release, "+counted(goroutines, "goroutine", "goroutines"), locker, here(least, aim))},
	}
}

var contendedMetrics = []result.Metric{
	result.HandOverP50, result.HandOverP99, result.HandOverMax, result.Mean, result.P70, result.P90, result.P99, result.FairShare, result.ClientCPU, result.EtcdCPU, result.PostgresCPU,
}

func contended(waiters int, least, aim float64) Scenario {
	return Scenario{
		Name:       fmt.Sprintf("lock/contended/%d", waiters),
		Title:      fmt.Sprintf("One contended lock, %d waiters in 4 processes", waiters),
		About:      "Each acquires the lock and releases it at once. The hand-over is the time from the call that releases to the return of the next call that acquires.",
		Contenders: []contender.Contender{mutex, locker, contender.PgLocker},
		Baseline:   []string{mutex.Name},
		Processes:  4, Goroutines: waiters / 4, Keys: load.Hot, Locks: true, Metrics: contendedMetrics,
		Musts: []Must{
			rate(fmt.Sprintf("contended lock, %d waiters in 4 processes", waiters), locker, here(least, aim)),
			{Row: fmt.Sprintf("its hand-over, p99, %d waiters", waiters), Contender: locker.Name, Metric: result.HandOverP99, Compared: AsRatio, AtMost: true, Bounds: here(0.2, 0.1)},
		},
	}
}

func several(n int, least, aim float64) Scenario {
	resources := counted(n, "resource", "resources")
	s := Scenario{
		Name:       fmt.Sprintf("several/%d", n),
		Title:      fmt.Sprintf("guard.Do on %s at once, kept, 8 connections", resources),
		About:      "Each goroutine reads and writes the same rows of its own in each transaction.",
		Contenders: []contender.Contender{bare, guardDo},
		Baseline:   []string{bare.Name},
		Goroutines: 8, Keys: load.Distinct, Width: n, Metrics: perOperation,
		Musts: []Must{rate(fmt.Sprintf("guard.Do on %s, kept, 8 connections, against bare over the same rows", resources), guardDo, here(least, aim))},
	}
	if n == 20 {
		s.Contenders = append(s.Contenders, contender.DoCold)
		s.Musts = append(s.Musts, rate("guard.Do on 20 resources, cold (acquired, claimed, released), against the same kept", contender.DoCold, here(0.25, 0.5), guardDo))
	}
	return s
}

var first = Scenario{
	Name: "first", Title: "First use of 10,000 resources, 8 goroutines",
	About:      "Each operation is the first on its resource, which it acquires, claims and keeps. A cell ends with the 10,000th, or after 10 s.",
	Contenders: []contender.Contender{bare, guardDo},
	Baseline:   []string{bare.Name},
	Goroutines: 8, Keys: load.Fresh, Limit: 10000, Seconds: 10, Rounds: 5,
	Metrics: append([]result.Metric{result.EtcdCPU}, perOperation...),
	Musts:   []Must{rate("first use (acquire, claim, run) of 10,000 resources by 8 goroutines, against a bare transaction each", guardDo, here(0.25, 0.4))},
}

var memory = Scenario{
	Name: "memory", Title: "10,000 resources held",
	About:      "One process acquires 10,000 and then does nothing. Memory and goroutines are counted from when each of its goroutines has acquired one, after a garbage collection; keep-alives for 30 s.",
	Contenders: []contender.Contender{contender.DoHeld, contender.LockerHeld, contender.MutexHeld},
	Goroutines: 32, Keys: load.Fresh, Connections: 8, Count: 10000, Rounds: 3,
	Regimes: []result.Regime{tmpfs},
	Metrics: []result.Metric{result.BytesEach, result.GoroutinesN, result.KeepAlives},
	Musts: []Must{
		atMost("10,000 resources held: bytes each", result.BytesEach, Bound{1 << 10, 512}),
		atMost("same: goroutines", result.GoroutinesN, Bound{1, 0}),
		atMost("same: keep-alives a second (one for each third of a time to live of 10 s)", result.KeepAlives, Bound{0.34, 0}),
	},
}

func atMost(row string, m result.Metric, bound Bound) Must {
	return Must{Row: row, Contender: guardDo.Name, Metric: m, Compared: Absolute, AtMost: true, Bounds: map[result.Regime]Bound{tmpfs: bound}}
}

var snapshot = func() Scenario {
	s := Scenario{
		Name: "snapshot", Title: "One hot SKU while a transaction has a snapshot",
		About:      "A transaction at REPEATABLE READ, as of a long report, begins before each run and ends after it. Until then Postgres keeps every version of the row and of its fence.",
		Baseline:   []string{forUpdate.Name},
		Goroutines: 8, Keys: load.Hot, Seconds: 30, Rounds: 1, Optional: true, Regimes: direct,
		Metrics: append([]result.Metric{result.Lasting, result.Grown}, perOperation...),
	}
	for _, c := range []contender.Contender{forUpdate, guardDo} {
		during := c.During("during a snapshot", contender.Snapshot)
		s.Contenders = append(s.Contenders, c, during)
		s.Musts = append(s.Musts, rate("hot SKU, 8 goroutines, "+c.Name+" while a snapshot is held, against without", during, nil, c))
	}
	return s
}()

// onHistory is a load beside a history of other resources, with what goes on there, if anything.
func onHistory(name, title, about string, contenders ...contender.Contender) Scenario {
	return Scenario{
		Name: name, Title: title, About: "Each goroutine uses 64 resources of its own in turns, all kept. " + about,
		Contenders: contenders, Baseline: []string{contenders[0].Name},
		Goroutines: 8, Keys: load.Spread, Seconds: 8, Optional: true, Regimes: direct, Metrics: perOperation,
	}
}

func filled(name string, entries int) contender.Contender {
	c := guardDo
	c.Name, c.History = name, entries
	return c
}

var history = func() Scenario {
	full := filled("guard.Do, 10 million entries", 10_000_000)
	s := onHistory("history", "A history of 10 million entries",
		"One database has a history of 10 million entries of 100,000 other resources. It takes minutes to fill, and 5 GB.",
		filled("guard.Do, empty history", 0), full)
	s.Musts = []Must{rate("guard.Do with a history of 10 million entries, against an empty one", full, here(0.9, 1))}
	return s
}()

var prune = func() Scenario {
	alone := filled(guardDo.Name, 5_000_000)
	beside := alone.During("beside a prune", contender.Pruning)
	s := onHistory("prune", "A prune of 5 million entries beside a full load",
		"Both databases have a history of 5 million old entries of 50,000 other resources. In one of them Store.Prune deletes these while the load runs. It takes minutes to fill, and 3 GB.",
		alone, beside)
	s.Metrics = append([]result.Metric{result.Pruned}, perOperation...)
	s.Musts = []Must{
		rate("guard.Do beside a prune of 5 million entries, against without", beside, here(0.85, 1)),
		{Row: "entries a second that the prune deletes meanwhile", Contender: beside.Name, Metric: result.Pruned, Compared: Absolute, Bounds: here(1000, 0)},
	}
	return s
}()

var anchors = func() Scenario {
	alone := filled(guardDo.Name, 1_000_000)
	beside := alone.During("beside anchoring", contender.Anchoring)
	s := onHistory("anchor", "A history of 10,000 resources anchored each second beside a full load",
		"Both databases have a history of 1 million entries of 10,000 other resources. In one of them the heads of all resources are recorded in a signed log each second, 60 times as often as is recommended.",
		alone, beside)
	s.Metrics = append([]result.Metric{result.Anchored}, perOperation...)
	s.Musts = []Must{
		rate("guard.Do beside an anchor each second, against without", beside, here(0.85, 1)),
		{Row: "runs of anchoring a second meanwhile", Contender: beside.Name, Metric: result.Anchored, Compared: Absolute},
	}
	return s
}()

var protect = func() Scenario {
	onProtected, batchOnProtected := guardDo.Protected("guard.Do, protected"), batchAlone.Protected("postgres.Batch, protected")
	return Scenario{
		Name: "protect/8", Title: "Guarded writes on a protected table, 8 connections",
		About:      "Each goroutine reads and writes a row of its own, as in do/8, on a table that postgres.Protect protects in enforce mode, and on one that it doesn't.",
		Contenders: []contender.Contender{guardDo, onProtected, batchAlone, batchOnProtected},
		Baseline:   []string{guardDo.Name},
		Goroutines: 8, Keys: load.Distinct, Metrics: perOperation,
		Musts: []Must{
			rate("guard.Do on a protected table, against an unprotected one", onProtected, everywhere(0.85, 0.95)),
			rate("batch form on a protected table, against an unprotected one", batchOnProtected, everywhere(0.85, 0.95), batchAlone),
		},
	}
}()
