package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05.0"), fmt.Sprintf(format, args...))
}

// walk takes the primary away in each of these ways, and says what came of it.
func (s *servers) walk(ctx context.Context, faults []patroni.Fault) error {
	if err := s.awaitSale(ctx, time.Now()); err != nil {
		return err
	}
	primary, timeline, err := s.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	say("%s is the primary, timeline %d; %d servers sell through HAProxy, one of them behind PgBouncer", primary.Name, timeline, len(s.sellers))
	fmt.Print(legend, "\n")
	var gaps []time.Duration
	for _, fault := range faults {
		gap, err := s.lose(ctx, fault)
		if err != nil {
			return err
		}
		gaps = append(gaps, gap)
	}
	return s.conclude(ctx, gaps)
}

// lose takes the primary away once, and returns how long no sale was acknowledged.
func (s *servers) lose(ctx context.Context, fault patroni.Fault) (time.Duration, error) {
	old, _, err := s.cluster.Leader(ctx)
	if err != nil {
		return 0, err
	}
	if !s.synchronous && fault.Name != patroni.SwitchedOver.Name {
		old.StopStreaming()
		say("the standbys receive nothing more from %s, which goes on selling", old.Name)
		pause(ctx, time.Second)
	}
	begun := time.Now()
	if err := fault.Inject(ctx, s.cluster, old); err != nil {
		return 0, err
	}
	say("%s was %s", old.Name, fault.Name)
	leader, timeline, err := s.cluster.LeaderAfter(ctx, old)
	if err != nil {
		return 0, err
	}
	promoted := time.Now()
	say("%s is the primary after %.1f s, timeline %d", leader.Name, promoted.Sub(begun).Seconds(), timeline)
	if err := s.awaitSale(ctx, promoted); err != nil {
		return 0, err
	}
	gap := time.Since(begun)
	say("first sale acknowledged after %.1f s", gap.Seconds())
	if err := fault.Revert(ctx, old); err != nil {
		return 0, err
	}
	if err := s.cluster.Settled(ctx); err != nil {
		return 0, err
	}
	f, err := s.count(ctx)
	if err != nil {
		return 0, err
	}
	say("%s is back as a standby after %.1f s. So far: %s", old.Name, time.Since(begun).Seconds(), f)
	return gap, nil
}

func (s *servers) awaitSale(ctx context.Context, since time.Time) error {
	return process.Poll(ctx, func(context.Context) error {
		s.ledger.mu.Lock()
		defer s.ledger.mu.Unlock()
		if !s.ledger.last.After(since) {
			return fmt.Errorf("no sale since %s", since.Format("15:04:05.0"))
		}
		return nil
	})
}

func (s *servers) count(ctx context.Context) (f figures, err error) {
	// First the ledger: what is acknowledged meanwhile can't be missed.
	known := s.ledger.known()
	rows, err := s.pool.Query(ctx, "select distinct order_id from reservation")
	if err != nil {
		return f, err
	}
	orders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return f, err
	}
	f.acknowledged = len(known)
	for _, order := range orders {
		delete(known, order)
	}
	f.lost = slices.Sorted(maps.Keys(known))
	if err := s.pool.QueryRow(ctx, "select coalesce(sum(count), 0) from fence.rejection").Scan(&f.rejections); err != nil {
		return f, err
	}
	stock, err := service.ReadStock(ctx, s.pool)
	f.oversold = stock.Oversold()
	return f, err
}

type figures struct {
	acknowledged, rejections, oversold int
	lost                               []string
}

const legend = `
  sold      orders that were acknowledged to a customer
  lost      those of them that the database no longer has
  rejected  attempts that the fence rejected; they wrote nothing
  oversold  units that were sold beyond those in stock
`

func (f figures) String() string {
	return fmt.Sprintf("sold %d, lost %d, rejected %d, oversold %d", f.acknowledged, len(f.lost), f.rejections, f.oversold)
}

// verdict says whether what was shown is what the mode promises.
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
