package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// FromServer reports whether the server itself wrote an error: a pooler's errors don't name
// a file and line of the server's source.
func FromServer(err *pgconn.PgError) bool { return err.Routine != "" }

// Reached turns an error of a pooler in between into storage.ErrStoreUnavailable, and returns the
// server's errors unchanged.
func Reached(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr) || FromServer(pgErr):
		return err
	case strings.Contains(pgErr.Message, "statement pooling"):
		return fmt.Errorf("%w: a pooler in statement mode has no transactions; set pool_mode to transaction or session: %w", &NotReadyError{Unsupported}, err)
	}
	return unavailable(err)
}

// Asked turns the error of a question that changes nothing into storage.ErrStoreUnavailable if a pooler
// in between, or the network, has ended it.
func Asked(err error) error {
	if sqlstate.Of(err) == "" && isNetwork(err) && !errors.Is(err, context.DeadlineExceeded) {
		return Lost(err)
	}
	return Reached(err)
}

// PreparedPrefix begins the names of the statements that the store prepares.
const PreparedPrefix = "fencekit_"

// NameCached adds the remedy to the error of a prepared statement that is missing, or
// exists already, because a pooler has given pgx another server connection, or SQL has removed it.
func NameCached(err error) error {
	state := sqlstate.Of(err)
	if state != sqlstate.NoStatement && state != sqlstate.StatementExists {
		return err
	}
	if text := err.Error(); !strings.Contains(text, "stmtcache_") && !strings.Contains(text, PreparedPrefix) {
		return err
	}
	return fmt.Errorf("%w: the connection's prepared statements are not those that were made: a pooler in transaction mode changes the server connection (put default_query_exec_mode=exec into the DSN), or SQL such as DISCARD ALL has removed them: %w",
		&NotReadyError{Unsupported}, err)
}
