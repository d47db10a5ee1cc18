package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/guard"
)

// errSlowDatabase is why a read's context ends.
var errSlowDatabase = errors.New("inventory: database did not answer in time")

// within bounds a read of the database that nothing guards, and says whether it is the
// database that is away.
func within(ctx context.Context, limit time.Duration, read func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlowDatabase)
	defer cancel()
	err := read(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case databaseAway(err):
		return fmt.Errorf("%w: %w", guard.ErrStoreUnavailable, err)
	}
	return err
}

// databaseAway reports whether err says that the database can't be reached, or
// not for now.
func databaseAway(err error) bool {
	var (
		connect *pgconn.ConnectError
		server  *pgconn.PgError
		network *net.OpError
	)
	switch {
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.As(err, &server):
		// Connection exceptions, too many connections, shutting down.
		return strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "53") || strings.HasPrefix(server.Code, "57P")
	}
	return false
}
