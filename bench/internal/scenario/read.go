package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/guard"
)

// read are calls that only read, on resources that the process keeps.
func read() []Scenario {
	const (
		bareRead  = "bare READ ONLY transaction"
		doRead    = "guard.Do, ReadOnly"
		batchRead = "postgres.Batch, ReadOnly"
		doSealed  = "guard.Do without ReadOnly"
	)
	return []Scenario{{
		Name:  "read/8",
		Title: "Reads on distinct resources, kept, 8 connections",
		About: "Each goroutine reads a row of its own, over a connection of its own; the process owns the resource already. Without ReadOnly the same function moves the fence and adds an entry to the history.",
		Contenders: []Contender{
			{Name: bareRead, Open: contender.BareRead, Unsafe: noCheck},
			{Name: doRead, Open: contender.DoRead(kept, guard.ReadOnly()), Fencekit: true},
			{Name: batchRead, Open: contender.BatchRead(kept), Fencekit: true},
			{Name: doSealed, Open: contender.DoRead(kept), Fencekit: true},
		},
		Baseline:   []string{bareRead},
		Goroutines: 8,
		Keys:       load.Distinct,
		Reads:      true,
		Metrics:    perOperation,
	}}
}
