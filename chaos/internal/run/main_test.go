package run

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) {
	worker.Reexec(tested()...)
	if os.Getenv(suiteVar) != "" {
		runTestSuite()
	}
	testenv.Main(m)
}

// code is a workload that does one thing, for tests of the engine.
type code struct {
	name    string
	operate func(ctx context.Context, env *workload.Env, op workload.Op) error
	check   func(ctx context.Context, db *pgxpool.Pool) error
}

func (c code) Name() string                               { return c.name }
func (code) Resources() []string                          { return []string{"sku"} }
func (code) Prepare(context.Context, *pgxpool.Pool) error { return nil }
func (c code) Operate(ctx context.Context, env *workload.Env, op workload.Op) error {
	return c.operate(ctx, env, op)
}

func (c code) Check(ctx context.Context, db *pgxpool.Pool) error {
	if c.check == nil {
		return nil
	}
	return c.check(ctx, db)
}

// tested are the workloads of these tests.
func tested() []workload.Workload {
	all := []workload.Workload{panicking{}, unprepared{}}
	for _, c := range slices.Concat(bad(), hanging(), []code{passer, idle}) {
		all = append(all, c)
	}
	return all
}

// passer is a workload that does nothing and needs no server.
var passer = code{name: "passer", operate: func(context.Context, *workload.Env, workload.Op) error { return nil }}

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
