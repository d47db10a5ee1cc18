package contender

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/bench/internal/result"
)

// Anchoring records the heads of all resources in a log, once a second. The first run records all
// that FillHistory has made.
func Anchoring(ctx context.Context, dsn string) (end func() (map[result.Metric]float64, error), err error) {
	return beside(ctx, dsn, result.Anchored, anchorEachSecond)
}

func anchorEachSecond(ctx context.Context, pool *pgxpool.Pool) (runs int64, err error) {
	source, err := audit.Open(pool, "")
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "anchors-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	log, err := newAnchorLog(filepath.Join(dir, "heads.jsonl"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for ctx.Err() == nil {
		run, err := log.Anchor(ctx, source)
		if err != nil {
			return runs, err
		}
		if len(run.Violations)+len(run.Unproven) > 0 {
			return runs, errors.New("contender: an honest history is reported")
		}
		runs++
		select {
		case <-each.C:
		case <-ctx.Done():
		}
	}
	return runs, nil
}

func newAnchorLog(path string) (*anchor.Log, error) {
	private, _, err := anchor.NewKey("bench")
	if err != nil {
		return nil, err
	}
	signer, err := anchor.ParseSigner(private)
	if err != nil {
		return nil, err
	}
	return anchor.Create(path, signer)
}
