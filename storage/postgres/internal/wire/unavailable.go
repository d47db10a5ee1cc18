package wire

import (
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
)

// Sentinels of package postgres.
var (
	ErrUnavailable = errors.New("postgres: database can't be reached")
	ErrUnsupported = errors.New("postgres: server is not supported")
)

// unavailableError is ErrUnavailable with the reason and the remedy, on one line.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string {
	return ErrUnavailable.Error() + ": " + oneline.Error(e.err).Error() + " (" + remedy(e.err) + ")"
}

func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }
func (e *unavailableError) Unwrap() error        { return e.err }

// remedy says what to check.
func remedy(err error) string {
	var dns *net.DNSError
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &dns):
		return "check the host in the DSN"
	case strings.Contains(err.Error(), "server refused TLS connection"): // pgconn has no name for it
		return "the server has no TLS: turn it on there, or set sslmode in the DSN"
	case !errors.As(err, &pgErr):
		return "check host and port in the DSN, and that the server runs there and can be reached from here"
	}
	switch pgErr.Code {
	case "28P01", "28000":
		return "check user and password in the DSN, and the server's pg_hba.conf"
	case "3D000":
		return "check the database in the DSN, or create it"
	case "53300":
		return "let all pools together have fewer connections, or raise the server's max_connections"
	}
	return "the server or the pooler in front of it takes no work now; its log says why"
}
