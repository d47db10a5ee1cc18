package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// figures are what was sold, and what is there.
type figures struct {
	acknowledged, rejections, oversold int
	lost                               []string
}

// legend explains the words of figures.
const legend = `
  sold      orders that were acknowledged to a customer
  lost      those of them that the database no longer has
  rejected  attempts that the fence rejected; they wrote nothing
  oversold  units that were sold beyond those in stock
`

func (f figures) String() string {
	return fmt.Sprintf("sold %d, lost %d, rejected %d, oversold %d", f.acknowledged, len(f.lost), f.rejections, f.oversold)
}

// verdict says in a sentence what was shown, and whether that is what the mode promises.
func (f figures) verdict(synchronous bool) (string, error) {
	text := fmt.Sprintf("of the %d sales that customers were told of, ", f.acknowledged)
	switch {
	case len(f.lost) == 0:
		text += "none is missing after the failovers"
	case synchronous:
		text += fmt.Sprintf("%d can't be found after the failovers, although a standby had confirmed each", len(f.lost))
	default:
		text += fmt.Sprintf("%d can't be found after the failovers, as asynchronous standbys allow", len(f.lost))
	}
	if f.oversold == 0 {
		text += ", and no more was sold than was in stock."
	} else {
		text += fmt.Sprintf(", and %d more units were sold than were in stock.", f.oversold)
	}
	if f.oversold > 0 || synchronous && len(f.lost) > 0 {
		return "Violated: " + text, errViolated
	}
	return "Shown: " + text, nil
}

// conclude says what was shown.
func (s *servers) conclude(ctx context.Context, gaps []time.Duration) error {
	f, err := s.count(ctx)
	if err != nil {
		return err
	}
	slices.Sort(gaps)
	mode := "synchronous"
	if !s.synchronous {
		mode = "asynchronous"
	}
	fmt.Printf("\nFailovers in %s mode: %d. In all: %s.\nFirst sale after a failover: median %.1f s, worst %.1f s.\n",
		mode, len(gaps), f, gaps[len(gaps)/2].Seconds(), gaps[len(gaps)-1].Seconds())
	if len(f.lost) > 0 {
		const shown = 5
		fmt.Printf("Lost, although acknowledged, among %d: orders %s\n", len(f.lost), strings.Join(f.lost[:min(shown, len(f.lost))], ", "))
	}
	text, err := f.verdict(s.synchronous)
	fmt.Println(text)
	return err
}
