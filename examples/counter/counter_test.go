package counter

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos"
)

func TestMain(m *testing.M) { chaos.Main(m, additions{}) }

func TestChaos(t *testing.T) {
	chaos.Test(t, chaos.Config{Workload: additions{}, Scenarios: []string{"expiry-at-every-await", "pauses"}})
}

// additions is Add as package chaos runs it.
type additions struct{}

func (additions) Name() string { return "additions" }

func (additions) Resources() []string { return []string{"counter/a"} }

func (additions) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, `
		create table counter (name text primary key, value int not null);
		create table addition (counter text not null, n int not null);
		insert into counter values ('a', 0)`)
	return err
}

func (additions) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	return Add(ctx, env.Guard, "a", 1+op.Rand().IntN(3))
}

func (additions) Check(ctx context.Context, db *pgxpool.Pool) error {
	var value, added int
	err := db.QueryRow(ctx, "select value, (select coalesce(sum(n), 0) from addition) from counter").Scan(&value, &added)
	if err == nil && value != added {
		err = fmt.Errorf("the counter is %d, and %d were added", value, added)
	}
	return err
}
