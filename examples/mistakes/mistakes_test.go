package mistakes

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// transfers is a way to transfer as package chaos runs it.
type transfers struct {
	name string
	do   func(*Bank, context.Context, Transfer) error
}

var (
	right         = transfers{"right", (*Bank).Do}
	readsEarly    = transfers{"reads early", (*Bank).ReadsEarly}
	retriesByHand = transfers{"retries by hand", (*Bank).RetriesByHand}
)

func TestMain(m *testing.M) {
	chaos.Main(m, right, readsEarly, retriesByHand)
}

// The mistakes that a scenario finds.
func TestMistakes_AreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mistake  transfers
		scenario string
		says     string
	}{
		{readsEarly, "expiry-at-every-await", "differ from their transfers"},
		{retriesByHand, "lost-answer", "took effect twice"},
	} {
		t.Run(c.mistake.name, func(t *testing.T) {
			t.Parallel()
			suite, err := chaos.Run(t.Context(), chaos.Config{
				Workload: c.mistake, Scenarios: []string{c.scenario}, Groups: []string{chaos.Fenced}, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			require.Equal(t, chaos.Violated, suite.Verdict, suite.Reason)
			require.Contains(t, suite.Runs[0].Failed+suite.Runs[0].Wrong, c.says)
		})
	}
}

// What goes around the fence is found in one unit test, in seconds.
func TestMistakes_AreFoundByRequireFenced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(*Bank, context.Context, Transfer) error
		says string
	}{
		"right":                   {(*Bank).Do, ""},
		"writes through the pool": {(*Bank).WritesThroughPool, "goes around the fence"},
		"names one":               {(*Bank).NamesOne, "the state changed, and run claimed account/a: it writes around the fence"},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := pgxpool.New(t.Context(), pgserver.Database(t))
			require.NoError(t, err)
			defer pool.Close()
			_, err = postgres.Migrate(t.Context(), pool, "")
			require.NoError(t, err)
			require.NoError(t, right.Prepare(t.Context(), pool))
			store, err := postgres.NewStore(pool, nil)
			require.NoError(t, err)
			v := &verdict{TB: t}
			guardtest.RequireFenced(v, store, "account/b", func(ctx context.Context, h guardtest.Process[pgx.Tx]) error {
				return c.do(&Bank{h.Guard, pool}, ctx, Transfer{"key", "a", "b", 1})
			}, func(ctx context.Context) (balance int, err error) {
				err = pool.QueryRow(ctx, "select balance from account where name = 'b'").Scan(&balance)
				return balance, err
			})
			if c.says == "" {
				require.Empty(t, v.failure)
			}
			require.Contains(t, v.failure, c.says)
		})
	}
}

// verdict stands for the *testing.T of a test, and notes why that one would fail.
type verdict struct {
	testing.TB
	failure string
}

func (*verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) { v.failure = fmt.Sprintf(format, args...) }

// Name implements chaos.Workload.
func (w transfers) Name() string { return w.name }

// Resources implements chaos.Workload.
func (transfers) Resources() []string { return []string{"account/a"} }

// Prepare implements chaos.Workload.
func (transfers) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, `
		create table account (name text primary key, balance int not null);
		create table transfer (sender text not null, receiver text not null, amount int not null);
		insert into account values ('a', 1000), ('b', 1000), ('c', 1000)`)
	return err
}

// Operate implements chaos.Workload.
func (w transfers) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	random := op.Rand()
	accounts := []string{"a", "b", "c"}
	random.Shuffle(len(accounts), func(i, j int) { accounts[i], accounts[j] = accounts[j], accounts[i] })
	return w.do(&Bank{env.Guard, env.Pool}, ctx, Transfer{op.ID, accounts[0], accounts[1], 1 + random.IntN(3)})
}

// Check implements chaos.Workload.
func (transfers) Check(ctx context.Context, db *pgxpool.Pool) error {
	var wrong int
	err := db.QueryRow(ctx, `
		select count(*) from account a where balance <> 1000
			- coalesce((select sum(amount) from transfer where sender = a.name), 0)
			+ coalesce((select sum(amount) from transfer where receiver = a.name), 0)`).Scan(&wrong)
	if err == nil && wrong > 0 {
		err = errors.New(fmt.Sprint(wrong, " balances differ from their transfers"))
	}
	return err
}
