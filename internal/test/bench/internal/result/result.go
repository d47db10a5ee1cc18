// Package result is what a run of the benchmark found, as it is kept in a file, with its statistics.
package result

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Places of the servers' data.
const (
	Disk  = "disk"
	Tmpfs = "tmpfs"
)

// Regime is where the servers' data lies, and how much longer each round trip takes.
type Regime struct {
	Place   string
	Latency time.Duration
}

// String is "disk", or "tmpfs +0.5 ms".
func (r Regime) String() string {
	if r.Latency == 0 {
		return r.Place
	}
	return fmt.Sprintf("%s +%g ms", r.Place, float64(r.Latency)/float64(time.Millisecond))
}

// Metric is something that is measured in each cell.
type Metric string

// The metrics. Durations are in microseconds; "of an operation" means divided by how many
// there were.
const (
	Rate        Metric = "rate"         // operations a second
	Operations  Metric = "operations"   // that ended within the measured time
	P50         Metric = "p50"          // how long an operation took
	P99         Metric = "p99"          //
	ClientCPU   Metric = "client CPU"   // of an operation
	PostgresCPU Metric = "Postgres CPU" // of an operation
	EtcdCPU     Metric = "etcd CPU"     // of an operation
	RedisCPU    Metric = "Redis CPU"    // of an operation
	WAL         Metric = "WAL"          // bytes of an operation
	Allocations Metric = "allocations"  // of an operation
	Lost        Metric = "lost"         // updates
)

// Cell is what one contender did in one round.
type Cell struct {
	Scenario, Contender string
	Regime              Regime
	Round               int
	Values              map[Metric]float64
	Err                 string `json:",omitempty"` // why there are no values
}

// Run is everything that was found.
type Run struct {
	Began    time.Time
	Took     time.Duration
	Machine  string
	Versions string
	Commit   string
	Rounds   int
	Seconds  float64
	Cells    []Cell
}

// Values returns a metric of a contender by round.
func (r *Run) Values(scenario, contender string, regime Regime, m Metric) map[int]float64 {
	byRound := map[int]float64{}
	for _, c := range r.Cells {
		if c.Scenario != scenario || c.Contender != contender || c.Regime != regime || c.Err != "" {
			continue
		}
		if v, ok := c.Values[m]; ok {
			byRound[c.Round] = v
		}
	}
	return byRound
}

// Spread returns a metric of a contender over the rounds.
func (r *Run) Spread(scenario, contender string, regime Regime, m Metric) Spread {
	return Of(slices.Collect(maps.Values(r.Values(scenario, contender, regime, m))))
}

// Merge adds the cells of other.
func (r *Run) Merge(other Run) {
	r.Cells = append(r.Cells, other.Cells...)
	r.Took += other.Took
	r.Versions = cmp.Or(r.Versions, other.Versions)
}
