package scenario

import (
	"fmt"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// guardCold acquires and releases what it needs in each call.
const guardCold = "guard.Do, kept by nothing"

// several are calls on several resources at once.
func several() []Scenario {
	return []Scenario{
		severalResources(1, Bound{0.6, 0.8}), severalResources(5, Bound{0.5, 0.7}), severalResources(20, Bound{0.4, 0.6}),
	}
}

func severalResources(n int, least Bound) Scenario {
	s := Scenario{
		Name:  fmt.Sprintf("several/%d", n),
		Title: fmt.Sprintf("guard.Do on %s at once, kept, 8 connections", counted(n, "resource", "resources")),
		About: "Each goroutine reads and writes the same rows of its own in each transaction.",
		Contenders: []Contender{
			{Name: bare, Open: contender.Bare, Unsafe: noGuard},
			{Name: guardDo, Open: contender.Do(kept), Fencekit: true},
		},
		Baseline:   []string{bare},
		Goroutines: 8,
		Keys:       load.Distinct,
		Width:      n,
		Metrics:    perOperation,
		Musts: []Must{{
			Row:       fmt.Sprintf("guard.Do on %s, kept, 8 connections, against bare over the same rows", counted(n, "resource", "resources")),
			Contender: guardDo, Metric: result.Rate, Compared: AsRatio, Bounds: here(least.Least, least.Aim),
		}},
	}
	if n == 20 {
		s.Contenders = append(s.Contenders, Contender{Name: guardCold, Open: contender.Do(released), Fencekit: true})
		s.Musts = append(s.Musts, Must{
			Row: "guard.Do on 20 resources, cold (acquired, claimed, released), against the same kept", Contender: guardCold, Baseline: []string{guardDo},
			Metric: result.Rate, Compared: AsRatio, Bounds: here(0.25, 0.5),
		})
	}
	return s
}
