package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// unavailableError is storage.ErrStoreUnavailable with the reason and the remedy, on one line.
type unavailableError struct {
	err    error
	remedy string
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("postgres: database can't be reached: %v (%s)", oneline.Error(e.err), e.remedy)
}

func (e *unavailableError) Is(target error) bool { return target == storage.ErrStoreUnavailable }
func (e *unavailableError) Unwrap() error        { return e.err }

// lastingError is an unavailableError that lasts until an operator corrects the DSN or the
// server, so that trying again doesn't help.
type lastingError struct{ unavailableError }

// Retryable returns false.
func (e *lastingError) Retryable() bool { return false }

// unavailable returns the error for a connection that could not be made, or that a pooler
// in between can't use.
func unavailable(err error) error {
	why := reasonOf(err)
	if why.lasts {
		return &lastingError{unavailableError{err, why.remedy}}
	}
	return &unavailableError{err, why.remedy}
}

// Lost returns the error for connections that broke, one after the other.
func Lost(err error) error { return &unavailableError{err, checkServer} }

// reason is why a connection could not be made.
type reason struct {
	lasts  bool // until an operator corrects something
	remedy string
}

const (
	checkServer = "check host and port in the DSN, and that the server runs there and can be reached from here"
	checkLog    = "the server or the pooler in front of it takes no work now; its log says why"
)

// reasonOf returns why the connection failed. pgconn tries each host of the DSN, and with
// sslmode=prefer, the default, tries each twice. A failure that may pass by itself decides, else the
// last one.
func reasonOf(err error) (why reason) {
	tries := []error{err}
	if connect := new(pgconn.ConnectError); errors.As(err, &connect) {
		if joined, ok := connect.Unwrap().(interface{ Unwrap() []error }); ok {
			tries = joined.Unwrap()
		}
	}
	for _, err := range tries {
		if met := reasonOfTry(err); !met.lasts || why.lasts || why.remedy == "" {
			why = met
		}
	}
	return why
}

// reasonOfTry returns why one attempt has failed. Only what the server or the network says can pass
// by itself: the rest are checks of the client's.
func reasonOfTry(err error) reason {
	var pgErr *pgconn.PgError
	var dns *net.DNSError
	switch {
	case errors.As(err, &pgErr):
		return reasonOfServer(pgErr)
	case errors.As(err, &dns):
		return reason{false, "check the host in the DSN"}
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrStandbyConnection):
		return reason{false, "no server of the DSN takes writes: a failover is under way, or the primary is missing among its hosts"}
	case strings.Contains(err.Error(), "server refused TLS connection"): // pgconn says it by its text alone
		return reason{true, "the server has no TLS: turn it on there, or set sslmode in the DSN"}
	case strings.Contains(err.Error(), "channel binding"):
		return reason{true, "channel_binding=require needs TLS and scram-sha-256: set sslmode, or leave it out of the DSN"}
	case isCertificate(err):
		return reason{true, "check sslmode, sslrootcert, sslcert and the host in the DSN, and the server's certificate"}
	case isNetwork(err):
		return reason{false, checkServer}
	}
	return reason{true, "check the DSN, and that what answers there is PostgreSQL"}
}

// isCertificate reports whether TLS has failed by what one side has shown to the other.
func isCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, &op) && op.Op == "remote error" // an alert: the server's side has ended the handshake
}

// isNetwork reports whether err is one of the network's own: the connection was refused, broke or timed out.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// passing are the classes of SQLSTATEs that may pass by themselves: broken connections (which is all
// that PgBouncer says), conflicts, resources, objects in use, an operator's doing, and failures of the
// system and of the server itself.
var passing = []string{"08", "40", "53", "57", "58", "XX"}

// reasonOfServer returns why a server, or a pooler, has turned a login away.
func reasonOfServer(err *pgconn.PgError) reason {
	switch code := err.Code; {
	case !FromServer(err) && (strings.Contains(err.Message, "no such database") || strings.Contains(err.Message, "unsupported startup parameter")):
		return reason{true, "the pooler doesn't know it: correct the DSN, or the pooler's configuration"} // of PgBouncer, with 08P01
	case code == sqlstate.BadPassword, code == sqlstate.BadLogin:
		return reason{true, "check user and password in the DSN, and the server's pg_hba.conf"}
	case code == sqlstate.NoDatabase:
		return reason{true, "check the database in the DSN, or create it"}
	case code == sqlstate.NoRights && err.Routine == "CheckMyDatabase":
		return reason{true, "grant connect on database DATABASE to ROLE"}
	case code == sqlstate.NotInState:
		return reason{true, "check the database in the DSN, or: alter database DATABASE allow_connections true"}
	case code == sqlstate.NoRights, strings.HasPrefix(code, "22"), strings.HasPrefix(code, "42"), code == sqlstate.CantChange:
		return reason{true, "correct the parameter in the DSN, or where ALTER ROLE or ALTER DATABASE has set it"}
	case code == sqlstate.TooMany && err.Routine == "InitializeSessionUserId":
		return reason{false, "let all pools of this role together have fewer connections, or: alter role ROLE connection limit N"}
	case code == sqlstate.TooMany && err.Routine == "CheckMyDatabase":
		return reason{false, "let all pools on this database together have fewer connections, or: alter database DATABASE connection limit N"}
	case code == sqlstate.TooMany:
		return reason{false, "let all pools together have fewer connections, or raise the server's max_connections"}
	case code == sqlstate.DroppedDatabase:
		return reason{true, "the database was dropped: check the database in the DSN, or create it"}
	case slices.ContainsFunc(passing, func(class string) bool { return strings.HasPrefix(code, class) }):
		return reason{false, checkLog}
	}
	return reason{true, "the server turns this login away for good; its log says why"}
}
