package contender

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"time"

	"cirello.io/pglock"
	"github.com/lib/pq"

	"github.com/fencekit/fencekit/bench/internal/load"
)

// PGLock is cirello.io/pglock: a row of a table is the lock. A client that finds it
// taken tries again after the lock's whole time to live.
func PGLock(_ context.Context, t *load.Target) (*load.Work, error) {
	connector, err := pq.NewConnector(t.Postgres)
	if err != nil {
		return nil, err
	}
	connector.Dialer(countingDialer{&t.Wire})
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(t.Connections)
	db.SetMaxIdleConns(t.Connections)
	client, err := pglock.New(db, pglock.WithLeaseDuration(ttl*time.Second), pglock.WithHeartbeatFrequency(ttl*time.Second/3))
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &load.Work{
		Acquire: func(ctx context.Context, g int) (func(context.Context) error, error) {
			l, err := client.AcquireContext(ctx, t.Cell+"/"+t.Item(g).Resources[0])
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return client.ReleaseContext(ctx, l) }, nil
		},
		Close: func(context.Context) error { return db.Close() },
	}, nil
}

// createLocks creates the table that PGLock uses.
func createLocks(dsn string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	client, err := pglock.New(db)
	if err == nil {
		err = client.TryCreateTable()
	}
	return errors.Join(err, db.Close())
}

// countingDialer is Wire.Dial for lib/pq.
type countingDialer struct{ wire *load.Wire }

func (d countingDialer) Dial(network, address string) (net.Conn, error) {
	return d.wire.Dial(context.Background(), network, address)
}

func (d countingDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.wire.Dial(ctx, network, address)
}
