package scenario

import (
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// hot are calls that all use one resource.
func hot() []Scenario {
	one, four, fair := hotSKU(1, 64), hotSKU(4, 16), hotSKU(4, 16)
	one.Musts = []Must{
		{Row: "hot SKU, 1 process × 64, batch form, against SELECT FOR UPDATE at the same concurrency", Contender: batchForm, Metric: result.Rate, Compared: AsRatio, Baseline: []string{forUpdate}, Bounds: here(19, 50)},
		{Row: "same, against SELECT FOR UPDATE at its best", Contender: batchForm, Metric: result.Rate, Compared: AsRatio, Bounds: here(19, 50)},
		{Row: "hot SKU, 1 process × 64, batch form, against lock + transaction + unlock with etcd's Mutex", Contender: batchForm, Metric: result.Rate, Compared: AsRatio, Baseline: []string{mutexTx}, Bounds: here(70, 150)},
	}
	four.Musts = []Must{
		{Row: "hot SKU, 4 processes × 16, batch form, against SELECT FOR UPDATE at the same concurrency", Contender: batchForm, Metric: result.Rate, Compared: AsRatio, Baseline: []string{forUpdate}, Bounds: here(8, 20)},
		{Row: "same, against SELECT FOR UPDATE at its best", Contender: batchForm, Metric: result.Rate, Compared: AsRatio, Bounds: here(8, 20)},
	}
	fair.Name, fair.Title = "hot/fair", "One hot SKU, 4 processes of 16 goroutines, for 10 s: who gets how much"
	fair.About = "As above, for long enough to see whether each process gets its share."
	fair.Contenders = slices.DeleteFunc(fair.Contenders, func(c Contender) bool {
		return !slices.Contains([]string{forUpdate, guardDo, batchForm, mutexTx}, c.Name)
	})
	fair.Baseline = []string{forUpdate}
	fair.Seconds, fair.Rounds, fair.Regimes = 10, 3, []result.Regime{disk, tmpfs}
	for _, c := range []string{guardDo, batchForm} {
		fair.Musts = append(fair.Musts, Must{Row: "hot SKU, 4 processes × 16, " + c + ": the least that a process did, of its fair share", Contender: c, Metric: result.FairShare, Compared: Absolute, Bounds: here(0.5, 0)})
	}
	return []Scenario{one, four, fair}
}

// hotSKU has 64 goroutines on one row.
func hotSKU(processes, goroutines int) Scenario {
	pools := []int{2, 8}
	if processes > 1 {
		pools = []int{1, 2}
	}
	rowLock := Contender{Name: forUpdate, Open: contender.ForUpdate}
	best, names := atBest(rowLock, pools...)
	return Scenario{
		Name:  fmt.Sprintf("hot/%dx%d", processes, goroutines),
		Title: fmt.Sprintf("One hot SKU, %s of %d goroutines", counted(processes, "process", "processes"), goroutines),
		About: "All read and write the same row. A goroutine has a connection unless the name says otherwise; SELECT FOR UPDATE is also given fewer, and is compared with at its best.",
		Contenders: slices.Concat([]Contender{rowLock}, best, []Contender{
			{Name: guardDo, Open: contender.Do(kept), Fencekit: true},
			{Name: batchForm, Open: contender.Batch(kept), Fencekit: true},
			{Name: atomic, Open: contender.AtomicUpdate},
			{Name: advisory, Open: contender.AdvisoryLock},
			{Name: optimistic, Open: contender.Optimistic},
			{Name: serializable, Open: contender.Serializable},
			{Name: mutexTx, Open: contender.Locked(contender.Mutex), Unsafe: noFence},
			{Name: redsyncTx, Open: contender.Locked(contender.Redsync), Unsafe: redisTTL},
			{Name: setNX1 + " + transaction", Open: contender.Locked(contender.SetNX(every1)), Unsafe: redisTTL},
			{Name: setNX50 + " + transaction", Open: contender.Locked(contender.SetNX(every50)), Unsafe: redisTTL},
		}),
		Baseline:   append([]string{forUpdate}, names...),
		Processes:  processes,
		Goroutines: goroutines,
		Keys:       load.Hot,
		Metrics:    append([]result.Metric{result.FairShare, result.Retries, result.EtcdCPU}, perOperation...),
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
