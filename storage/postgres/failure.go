package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/oneline"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

var errStandby = fmt.Errorf("%w: it is a standby (in recovery); connect to the primary, as with target_session_attrs=read-write", &NotReadyError{Unsupported})

const preparedPrefix = "fencekit_"

func namedError(err error) error {
	state := sqlstate.Of(err)
	switch {
	case err == nil:
		return nil
	case inRecovery(err):
		return fmt.Errorf("%w: %w", errStandby, err)
	case wire.Limit(err) != "" && !errors.As(err, new(*limitError)):
		return &limitError{err}
	case err.Error() == "closed pool": // the pool has no other sign
		return fmt.Errorf("%w: close it after the last use of the Guard and the Store on it", err)
	case state != sqlstate.NoStatement && state != sqlstate.StatementExists:
		return err
	}
	if text := err.Error(); !strings.Contains(text, "stmtcache_") && !strings.Contains(text, preparedPrefix) {
		return err
	}
	return fmt.Errorf("%w: the connection's prepared statements are not those that were made: a pooler in transaction mode changes the server connection (put default_query_exec_mode=exec into the DSN), or SQL such as DISCARD ALL has removed them: %w",
		&NotReadyError{Unsupported}, err)
}

// limitError is not retryable, since the same work takes as long again.
type limitError struct{ error }

func (e *limitError) Error() string   { return e.error.Error() + " (" + wire.Limit(e.error) + ")" }
func (e *limitError) Unwrap() error   { return e.error }
func (e *limitError) Retryable() bool { return false }

// isBroken reports whether err, with which a connection ended, is no more than a sign that it was lost: an error of the
// network, or whatever a pooler says that is none of its limits. What the server says itself, it says for a reason.
func isBroken(err error) bool {
	return !wire.FromServer(err) && wire.Limit(err) == "" && !errors.Is(err, storage.ErrStoreUnavailable)
}

// isAway reports whether the server does no work here. Then nothing of the message takes effect.
func isAway(err error) bool { return sqlstate.Ended(sqlstate.Of(err)) || inRecovery(err) }

// inRecovery reports whether the server is a standby. It looks at names of the server's functions, since texts are
// translated.
func inRecovery(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case sqlstate.Standby:
		return true
	case sqlstate.Unsupported: // from the check hooks of transaction_read_only and transaction_isolation
		return strings.HasPrefix(pgErr.Routine, "call_") && strings.HasSuffix(pgErr.Routine, "_check_hook")
	case sqlstate.NotInState:
		return pgErr.Routine == "pg_current_wal_lsn"
	case sqlstate.ReadOnly:
		return pgErr.Routine == "PreventCommandDuringRecovery"
	}
	return false
}

// poolerError turns a pooler's error into storage.ErrStoreUnavailable.
func poolerError(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr) || wire.FromServer(err):
		return err
	case wire.Limit(err) != "":
		return namedError(err)
	case strings.Contains(pgErr.Message, "statement pooling"):
		return fmt.Errorf("%w: a pooler in statement mode has no transactions; set pool_mode to transaction or session: %w", &NotReadyError{Unsupported}, err)
	}
	return unavailable(err)
}

// askedError is poolerError for a question that changes nothing, and also turns an error of the network into
// storage.ErrStoreUnavailable.
func askedError(err error) error {
	if sqlstate.Of(err) == "" && isNetwork(err) && !errors.Is(err, context.DeadlineExceeded) {
		return lostServer(err)
	}
	return poolerError(err)
}

func acquireConn(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &noConnectionError{err: err}
	}
	conn, silent, err := wire.Acquire(ctx, pool)
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, new(*pgconn.ConnectError)):
		return nil, unavailable(err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &noConnectionError{why: awaited(pool.Stat(), silent), err: err}
	case isNetwork(err), sqlstate.Of(err) != "":
		return nil, unavailable(err)
	}
	return nil, &noConnectionError{err: namedError(err)}
}

func awaited(stat *pgxpool.Stat, silent bool) string {
	if silent {
		return "neither an idle connection nor a new one was answered: "
	}
	if stat.AcquiredConns() >= stat.MaxConns() {
		return fmt.Sprintf("all of its connections (MaxConns is %d) are in use: ", stat.MaxConns())
	}
	return fmt.Sprintf("the server did not answer (%d of at most %d connections are in use): ", stat.AcquiredConns(), stat.MaxConns())
}

type noConnectionError struct {
	why string
	err error
}

func (e *noConnectionError) Error() string {
	return "postgres: no connection from the pool: " + e.why + e.err.Error()
}

func (e *noConnectionError) Unwrap() error { return e.err }

// failedAt adds the step, unless there was no connection: then guard adds it.
func failedAt(step string, err error) error {
	if errors.Is(err, storage.ErrStoreUnavailable) || errors.As(err, new(*noConnectionError)) {
		return err
	}
	return fmt.Errorf("postgres: %s: %w", step, err)
}

type unavailableError struct {
	err    error
	remedy string
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("postgres: database can't be reached: %v (%s)", oneline.Error(e.err), e.remedy)
}

func (e *unavailableError) Is(target error) bool { return target == storage.ErrStoreUnavailable }
func (e *unavailableError) Unwrap() error        { return e.err }

type lastingError struct{ unavailableError }

func (e *lastingError) Retryable() bool { return false }

// lostServer is for several connections that broke, one after the other.
func lostServer(err error) error { return &unavailableError{err, checkServer} }

const (
	checkServer = "check host and port in the DSN, and that the server runs there and can be reached from here"
	checkLog    = "the server or the pooler in front of it takes no work now; its log says why"
)

// unavailable picks one of pgconn's attempts, one for each host of the DSN and mode of TLS: a failure that may pass
// by itself, else the last one.
func unavailable(err error) error {
	tries := []error{err}
	if connect := new(pgconn.ConnectError); errors.As(err, &connect) {
		if joined, ok := connect.Unwrap().(interface{ Unwrap() []error }); ok {
			tries = joined.Unwrap()
		}
	}
	remedy, lasts := "", true
	for _, err := range tries {
		if r, l := remedyFor(err); lasts || !l {
			remedy, lasts = r, l
		}
	}
	if lasts {
		return &lastingError{unavailableError{err, remedy}}
	}
	return &unavailableError{err, remedy}
}

// remedyFor expects only what the server or the network says to pass by itself; the rest are checks of the
// client's.
func remedyFor(err error) (remedy string, lasts bool) {
	var pgErr *pgconn.PgError
	switch text := err.Error(); {
	case errors.As(err, &pgErr):
		return remedyForLogin(pgErr)
	case errors.As(err, new(*net.DNSError)):
		return "check the host in the DSN", false
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrStandbyConnection):
		return "no server of the DSN takes writes: a failover is under way, or the primary is missing among its hosts", false
	case strings.Contains(text, "server refused TLS connection"): // pgconn has no other sign
		return "the server has no TLS: turn it on there, or set sslmode in the DSN", true
	case strings.Contains(text, "channel binding"):
		return "channel_binding=require needs TLS and scram-sha-256: set sslmode, or leave it out of the DSN", true
	case isCertificate(err):
		return "check sslmode, sslrootcert, sslcert and the host in the DSN, and the server's certificate", true
	case isNetwork(err):
		return checkServer, false
	}
	return "check the DSN, and that what answers there is PostgreSQL", true
}

func isCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, &op) && op.Op == "remote error" // the server's side ended the handshake
}

func isNetwork(err error) bool {
	return errors.As(err, new(net.Error)) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// passing are classes of errors that may pass by themselves: broken connections (all that PgBouncer says),
// conflicts, resources, objects in use, an operator's doing, and failures of the system and the server.
var passing = []string{"08", "40", "53", "57", "58", "XX"}

func remedyForLogin(err *pgconn.PgError) (remedy string, lasts bool) {
	switch code := err.Code; {
	case !wire.FromServer(err) && (strings.Contains(err.Message, "no such database") || strings.Contains(err.Message, "unsupported startup parameter")):
		return "the pooler doesn't know it: correct the DSN, or the pooler's configuration", true
	case code == sqlstate.BadPassword, code == sqlstate.BadLogin:
		return "check user and password in the DSN, and the server's pg_hba.conf", true
	case code == sqlstate.NoDatabase:
		return "check the database in the DSN, or create it", true
	case code == sqlstate.NoRights && err.Routine == "CheckMyDatabase":
		return "grant connect on database DATABASE to ROLE", true
	case code == sqlstate.NotInState:
		return "check the database in the DSN, or: alter database DATABASE allow_connections true", true
	case code == sqlstate.NoRights, strings.HasPrefix(code, "22"), strings.HasPrefix(code, "42"), code == sqlstate.CantChange:
		return "correct the parameter in the DSN, or where ALTER ROLE or ALTER DATABASE has set it", true
	case code == sqlstate.TooMany && err.Routine == "InitializeSessionUserId":
		return "let all pools of this role together have fewer connections, or: alter role ROLE connection limit N", false
	case code == sqlstate.TooMany && err.Routine == "CheckMyDatabase":
		return "let all pools on this database together have fewer connections, or: alter database DATABASE connection limit N", false
	case code == sqlstate.TooMany:
		return "let all pools together have fewer connections, or raise the server's max_connections", false
	case code == sqlstate.DroppedDatabase:
		return "the database was dropped: check the database in the DSN, or create it", true
	case slices.ContainsFunc(passing, func(class string) bool { return strings.HasPrefix(code, class) }):
		return checkLog, false
	}
	return "the server turns this login away for good; its log says why", true
}
