package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// serverTimeout is far above what making, dropping or stopping anything takes.
const serverTimeout = 30 * time.Second

// withDatabase runs f on a new database, and drops that in the end: the server may
// have been there before, and goes on.
func withDatabase(ctx context.Context, pg *pgserver.Server, name string, f func(dsn string) error) (err error) {
	name = fmt.Sprintf("inventory_%s_%d", name, time.Now().UnixNano())
	// A signal in the midst of making it would leave a database behind.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverTimeout)
	defer cancel()
	dsn, err := pg.CreateDatabase(making, name)
	if err != nil {
		return err
	}
	defer func() {
		dropping, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverTimeout)
		defer cancel()
		err = errors.Join(err, pg.DropDatabase(dropping, name))
	}()
	return f(dsn)
}

// stop ends a server. One that was there before goes on.
func stop(server interface{ Stop(context.Context) error }) error {
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	return server.Stop(ctx)
}
