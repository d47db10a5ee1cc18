package chaos

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestMain(m *testing.M) {
	Reexec(tested()...)
	if os.Getenv(suiteVar) != "" {
		beSuite()
	}
	Main(m, tested()...)
}

// code is a workload that does one thing, for tests of the engine.
type code struct {
	name    string
	operate func(ctx context.Context, env *Env, op Op) error
	check   func(ctx context.Context, db *pgxpool.Pool) error
}

func (c code) Name() string                               { return c.name }
func (code) Resources() []string                          { return []string{"sku"} }
func (code) Prepare(context.Context, *pgxpool.Pool) error { return nil }
func (c code) Operate(ctx context.Context, env *Env, op Op) error {
	return c.operate(ctx, env, op)
}

func (c code) Check(ctx context.Context, db *pgxpool.Pool) error {
	if c.check == nil {
		return nil
	}
	return c.check(ctx, db)
}

// tested are the workloads of these tests.
func tested() []Workload {
	all := []Workload{panicking{}, unprepared{}}
	for _, c := range slices.Concat(bad(), hanging(), []code{passer, idle}) {
		all = append(all, c)
	}
	return all
}
