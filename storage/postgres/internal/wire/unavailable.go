package wire

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// unavailableError is storage.ErrStoreUnavailable with the reason and the remedy, on one line.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string {
	return fmt.Sprintf("postgres: database can't be reached: %v (%s)", oneline.Error(e.err), remedy(e.err))
}

func (e *unavailableError) Is(target error) bool { return target == storage.ErrStoreUnavailable }
func (e *unavailableError) Unwrap() error        { return e.err }

// loginError is an unavailableError that lasts until an operator corrects the DSN or the
// server, so that trying again doesn't help.
type loginError struct{ unavailableError }

// Retryable returns false.
func (e *loginError) Retryable() bool { return false }

// unavailable returns the error for a connection that could not be made, or that a pooler
// in between can't use.
func unavailable(err error) error {
	switch state := sqlstate.Of(err); {
	case state == sqlstate.BadPassword, state == sqlstate.BadLogin, state == sqlstate.NoDatabase, noTLS(err):
		return &loginError{unavailableError{err}}
	}
	return &unavailableError{err}
}

// Lost returns the error for connections that were closed without a word, one after the other.
func Lost(err error) error { return &unavailableError{err} }

// noTLS reports whether the connection failed because the server has no TLS, which pgconn says by its
// text alone. With sslmode=prefer, the default, pgconn says so too, and then tries without TLS: the
// reason is that attempt's.
func noTLS(err error) bool {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) || connect.Config.TLSConfig == nil {
		return false
	}
	withoutTLS := func(c *pgconn.FallbackConfig) bool { return c.TLSConfig == nil }
	return !slices.ContainsFunc(connect.Config.Fallbacks, withoutTLS) && strings.Contains(err.Error(), "server refused TLS connection")
}

// remedy says what to check.
func remedy(err error) string {
	var dns *net.DNSError
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &dns):
		return "check the host in the DSN"
	case noTLS(err):
		return "the server has no TLS: turn it on there, or set sslmode in the DSN"
	case !errors.As(err, &pgErr):
		return "check host and port in the DSN, and that the server runs there and can be reached from here"
	}
	switch pgErr.Code {
	case sqlstate.BadPassword, sqlstate.BadLogin:
		return "check user and password in the DSN, and the server's pg_hba.conf"
	case sqlstate.NoDatabase:
		return "check the database in the DSN, or create it"
	case "53300":
		return "let all pools together have fewer connections, or raise the server's max_connections"
	}
	return "the server or the pooler in front of it takes no work now; its log says why"
}
