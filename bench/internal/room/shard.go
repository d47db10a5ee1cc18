package room

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/machine"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// shard is a Postgres beside the first one, for contenders that spread their data.
type shard struct {
	server *pgserver.Server
	admin  *pgx.Conn
}

// CreateShard makes an empty database on the further server of this number, from 1 on, and starts
// that and those before it if they don't run.
func (r *Room) CreateShard(ctx context.Context, number int, name string) (dsn string, err error) {
	for len(r.shards) < number {
		if err := r.startShard(ctx); err != nil {
			return "", err
		}
	}
	return r.shards[number-1].server.CreateDatabase(ctx, name)
}

func (r *Room) startShard(ctx context.Context) error {
	server, err := pgserver.Start(ctx, &pgserver.Config{Settings: settings, Local: true})
	if err != nil {
		return err
	}
	admin, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	r.shards = append(r.shards, shard{server, admin})
	r.pids[fmt.Sprintf("%s %d", Servers[1], len(r.shards)+1)], err = machine.Listener(hostOf(server.DSN()))
	return err
}

// DropShard drops what CreateShard made.
func (r *Room) DropShard(ctx context.Context, number int, name string) error {
	return r.shards[number-1].server.DropDatabase(ctx, name)
}

// ReachShard returns a DSN of a database that CreateShard made, with latency as in Reach.
func (r *Room) ReachShard(latency time.Duration, dsn string) (string, error) {
	a, err := r.through(latency, []string{hostOf(dsn)})
	if err != nil {
		return "", err
	}
	return withHost(dsn, a[0])
}
