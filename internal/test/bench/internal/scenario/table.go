package scenario

import (
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/internal/test/bench/internal/contender"
	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
)

// All are the scenarios, in the order in which they run.
func All() []Scenario {
	return slices.Concat(
		[]Scenario{distinct(1), distinct(8), reads, hot},
		[]Scenario{fleet("fleet/4x4", 1000), fleet("fleet/4x4/hot", 8)},
		[]Scenario{several(1), several(20)},
		[]Scenario{first},
	)
}

// The contenders, as scenarios name them.
var (
	bare, guardDo, batch = contender.Bare, contender.Do, contender.Batch
	forUpdate            = contender.ForUpdate
)

// perOperation is what an operation costs.
var perOperation = []result.Metric{
	result.P50, result.P99, result.ClientCPU, result.PostgresCPU, result.EtcdCPU, result.RedisCPU, result.WAL, result.Allocations,
}

// rate is a Ratio of rates.
func rate(c, against contender.Contender) Ratio { return Ratio{c.Name, against.Name, result.Rate} }

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func distinct(connections int) Scenario {
	return Scenario{
		Name:       fmt.Sprintf("do/%d", connections),
		Title:      "guard.Do on distinct resources, kept, " + counted(connections, "connection", "connections"),
		About:      "Each goroutine reads and writes a row of its own, over a connection of its own; the process owns the resource already. What compares, counts and records a token in two tables, and no more, is the bound of what keeps a fence and a history. One atomic UPDATE does without reading and deciding, which not every operation can.",
		Contenders: []contender.Contender{bare, guardDo, batch, contender.OwnFence, contender.AtomicUpdate},
		Baseline:   []string{bare.Name},
		Goroutines: connections, Keys: load.Distinct, Metrics: perOperation,
	}
}

var reads = Scenario{
	Name: "read/8", Title: "Reads on distinct resources, kept, 8 connections",
	About:      "Each goroutine reads a row of its own, over a connection of its own; the process owns the resource already.",
	Contenders: []contender.Contender{contender.BareRead, contender.DoRead},
	Baseline:   []string{contender.BareRead.Name},
	Goroutines: 8, Keys: load.Distinct, Reads: true, Metrics: perOperation,
}

var best = forUpdate.Pools(2, 8)

var hot = Scenario{
	Name: "hot/1x64", Title: "One hot SKU, 1 process of 64 goroutines",
	About: "All read and write the same row. A goroutine has a connection unless the name says otherwise; SELECT FOR UPDATE is also given fewer, and is compared with at its best.",
	Contenders: slices.Concat([]contender.Contender{forUpdate}, best, []contender.Contender{
		guardDo, batch, contender.AtomicUpdate, contender.AdvisoryLock, contender.MutexTx, contender.RedsyncTx,
	}),
	Baseline:   append([]string{forUpdate.Name}, contender.Names(best...)...),
	Goroutines: 64, Keys: load.Hot, Metrics: perOperation,
	Ratios: []Ratio{rate(batch, forUpdate), rate(batch, contender.MutexTx)},
}

func fleet(name string, skus int) Scenario {
	s := Scenario{
		Name:       name,
		Title:      fmt.Sprintf("A fleet: %d SKUs, 4 processes of 4 goroutines", skus),
		About:      "Each call reads and writes the row of a SKU at random, so that few processes find kept what they need. Each has a pool of 6 connections. Guards are configured as they are by default.",
		Contenders: append([]contender.Contender{forUpdate, contender.AdvisoryLock, contender.MutexTx, contender.RedsyncTx}, contender.DoInFleet...),
		Baseline:   []string{forUpdate.Name},
		Processes:  4, Goroutines: 4, Connections: 6, Keys: load.Random, Rows: skus, Metrics: perOperation,
	}
	for _, c := range contender.DoInFleet {
		s.Ratios = append(s.Ratios, Ratio{c.Name, forUpdate.Name, result.P99})
	}
	return s
}

func several(n int) Scenario {
	return Scenario{
		Name:       fmt.Sprintf("several/%d", n),
		Title:      fmt.Sprintf("guard.Do on %s at once, kept, 8 connections", counted(n, "resource", "resources")),
		About:      "Each goroutine reads and writes the same rows of its own in each transaction.",
		Contenders: []contender.Contender{bare, guardDo},
		Baseline:   []string{bare.Name},
		Goroutines: 8, Keys: load.Distinct, Width: n, Metrics: perOperation,
	}
}

var first = Scenario{
	Name: "first", Title: "First use of 10,000 resources, 8 goroutines",
	About:      "Each operation is the first on its resource, which it acquires, claims and keeps; locks are in etcd unless the name says otherwise. A cell ends with the 10,000th, or after 10 s.",
	Contenders: []contender.Contender{bare, guardDo, contender.DoOnPostgres},
	Baseline:   []string{bare.Name},
	Goroutines: 8, Keys: load.Fresh, Limit: 10000, Seconds: 10, Rounds: 5,
	Metrics: perOperation,
}
