package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// FromServer reports whether the server itself wrote an error, and not a pooler,
// which knows no place in the server's source.
func FromServer(err *pgconn.PgError) bool { return err.Routine != "" }

// Reached returns as ErrUnavailable what a pooler in between says of its own, and
// the server's errors as they are.
func Reached(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr) || FromServer(pgErr):
		return err
	case strings.Contains(pgErr.Message, "statement pooling"):
		return fmt.Errorf("%w: a pooler in statement mode has no transactions; set pool_mode to transaction or session: %w", ErrUnsupported, err)
	}
	return &unavailableError{err}
}

// NameCached says what to do where pgx can't use a statement that it prepared, or
// not prepare it: it met another server connection.
func NameCached(err error) error {
	state := sqlstate.Of(err)
	if state != sqlstate.NoStatement && state != sqlstate.StatementExists || !strings.Contains(err.Error(), "stmtcache_") {
		return err
	}
	return fmt.Errorf("%w: a pooler in transaction mode changes the server connection under the statements that pgx prepares; put default_query_exec_mode=exec into the DSN, or let the pooler keep them (PgBouncer from 1.21 on: max_prepared_statements): %w",
		ErrUnsupported, err)
}
