package jobs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/jobs"
)

// BenchmarkWork compares 50 workers of one process with 10 connections, and of five processes with 10 each, with 50 that
// hold a row by FOR UPDATE SKIP LOCKED, and a connection, for as long as they work on it. Each job takes 5 to 50 ms; b.N
// is how many there are.
func BenchmarkWork(b *testing.B) {
	took := func() time.Duration { return time.Duration(5000+rand.IntN(45000)) * time.Microsecond }
	do := func(ctx context.Context, j jobs.Job[job]) error {
		time.Sleep(took())
		return finish(ctx, j)
	}
	forms := map[string]func(b *testing.B, pool *pgxpool.Pool){
		"SKIP LOCKED": func(b *testing.B, pool *pgxpool.Pool) {
			own := connect(b, pool.Config().ConnString(), func(cfg *pgxpool.Config) { cfg.MaxConns, cfg.MinConns = 50, 50 })
			b.ResetTimer()
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					for err := error(nil); err == nil; {
						err = pgx.BeginFunc(b.Context(), own, func(tx pgx.Tx) error {
							var id int64
							if err := tx.QueryRow(b.Context(), "select id from job where status = 'open' and run_at <= now() order by id limit 1 for update skip locked").Scan(&id); err != nil {
								return err
							}
							time.Sleep(took())
							_, err := tx.Exec(b.Context(), "with done as (update job set status = 'done' where id = $1 returning id) insert into effect select id from done", id)
							return err
						})
						if err != nil && !errors.Is(err, pgx.ErrNoRows) {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
		},
		"1 process": func(b *testing.B, pool *pgxpool.Pool) {
			g := process(b, pool)
			b.ResetTimer()
			start(b, g, queue(50), do)
			await(b, pool, "job where status = 'open'", 0)
		},
		"5 processes": func(b *testing.B, pool *pgxpool.Pool) {
			var all []*fencekit.Client
			for range 5 {
				all = append(all, process(b, pool))
			}
			b.ResetTimer()
			for _, g := range all {
				start(b, g, queue(10), do)
			}
			await(b, pool, "job where status = 'open'", 0)
		},
	}
	for _, name := range []string{"SKIP LOCKED", "1 process", "5 processes"} {
		b.Run(name, func(b *testing.B) {
			pool := database(b, b.N)
			forms[name](b, pool)
			b.StopTimer()
			if n := count(b, pool, "effect"); n != b.N {
				b.Fatalf("%d of %d jobs took effect", n, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
