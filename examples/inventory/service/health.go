package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/fencekit/fencekit/storage/postgres"
)

type health struct {
	Status string `json:"status"`
}

// healthz answers GET /healthz: the process is alive. It asks no other
// server, or one outage would have all of them restarted.
func healthz(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, "application/json", health{"alive"})
	return nil
}

// readyz answers GET /readyz: whether requests can be served, and if not, what is
// missing.
func (a *api) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), a.readTimeout)
	defer cancel()
	var lockErr, databaseErr error
	var asked sync.WaitGroup
	asked.Go(func() { lockErr = a.askEtcd(ctx) })
	asked.Go(func() { databaseErr = a.askPostgres(ctx) })
	asked.Wait()
	if err := errors.Join(lockErr, databaseErr); err != nil {
		a.log.Warn("not ready", "error", err)
		return notReady(lockErr, databaseErr)
	}
	writeJSON(w, http.StatusOK, "application/json", health{"ready"})
	return nil
}

func notReady(lockErr, databaseErr error) *problem {
	var away, details []string
	if lockErr != nil {
		p := lockServiceProblem(lockErr)
		away, details = append(away, lockService), append(details, strings.TrimSpace(p.Title+". "+p.Detail))
	}
	switch {
	case errors.Is(databaseErr, postgres.ErrNotMigrated):
		away, details = append(away, database), append(details, `The tables are missing or out of date: run "inventory init" or "fencectl migrate up".`)
	case databaseErr != nil:
		away, details = append(away, database), append(details, "Postgres doesn't answer.")
	}
	return later("not-ready", "Not ready", strings.Join(details, " "), away...)
}

// askEtcd acquires and releases a lock, as a deduction does: an etcd that is out of
// space, or was restored from a backup, answers and grants nothing. The name is the
// probe's own, so that no other one can have it, nor what is left of an earlier one.
func (a *api) askEtcd(ctx context.Context) error {
	lease, err := a.locker.TryAcquire(ctx, "readyz/"+rand.Text())
	if err != nil {
		return fmt.Errorf("acquiring a lock: %w", err)
	}
	if err := lease.Release(ctx); err != nil {
		return fmt.Errorf("releasing a lock: %w", err)
	}
	return nil
}

func (a *api) askPostgres(ctx context.Context) error {
	migrations, err := postgres.MigrationStatus(ctx, a.pool, "")
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if !m.Applied() {
			return fmt.Errorf("%w: migration %d (%s) is missing", postgres.ErrNotMigrated, m.Version, m.Name)
		}
	}
	var tables int
	err = a.pool.QueryRow(ctx, "select count(to_regclass(name)) from unnest(array['lot', 'reservation']) name").Scan(&tables)
	if err == nil && tables < 2 {
		err = fmt.Errorf("%w: the inventory's tables are missing", postgres.ErrNotMigrated)
	}
	return err
}
