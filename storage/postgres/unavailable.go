package postgres

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// unavailableError is ErrUnavailable with its reason and what to do, on one line.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string {
	return ErrUnavailable.Error() + ": " + reason(e.err) + " (" + remedy(e.err) + ")"
}

func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }
func (e *unavailableError) Unwrap() error        { return e.err }

// reason is the text of err, which has a line for each address and each way to connect
// that pgx tried, with what is the same said once.
func reason(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if said := func(earlier string) bool { return strings.Contains(earlier, line) }; !slices.ContainsFunc(lines, said) {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

// remedy says where to look.
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
