package scenario

import (
	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// snapshot shows what it costs that old versions of a hot row can't be cleaned up.
func snapshot() []Scenario {
	s := Scenario{
		Name:       "snapshot",
		Title:      "One hot SKU while a transaction has a snapshot",
		About:      "A transaction at REPEATABLE READ, as of a long report, begins before each run and ends after it. Until then Postgres keeps every version of the row and of its fence.",
		Goroutines: 8,
		Keys:       load.Hot,
		Long:       true,
		Rounds:     1,
		Optional:   true,
		Regimes:    []result.Regime{disk, tmpfs},
		Metrics:    append([]result.Metric{result.Grown}, perOperation...),
		Baseline:   []string{forUpdate},
	}
	for _, c := range []Contender{{Name: forUpdate, Open: contender.ForUpdate}, {Name: guardDo, Open: contender.Do(kept), Fencekit: true}} {
		during := c
		during.Name, during.Beside = c.Name+", during a snapshot", contender.Snapshot
		s.Contenders = append(s.Contenders, c, during)
		s.Musts = append(s.Musts, Must{
			Row: "hot SKU, 8 goroutines, " + c.Name + " while a snapshot is held, against without", Contender: during.Name, Baseline: []string{c.Name},
			Metric: result.Rate, Compared: AsRatio,
		})
	}
	return []Scenario{s}
}
