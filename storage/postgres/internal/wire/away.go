package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// Away reports whether the server itself says that it does no work on this connection: it stops,
// starts or crashes, has ended the session, or has become a standby. Nothing of a message that
// is answered so takes effect, and the connection can't be used again.
func Away(err error) bool { return sqlstate.Ended(sqlstate.Of(err)) || inRecovery(err) }

// inRecovery reports whether err says that the server is a standby, where BEGIN READ WRITE fails, and
// so does the begin check of a read-only transaction. The texts are translated, the names of the
// server's functions are not.
func inRecovery(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case sqlstate.Standby:
		return true
	case sqlstate.Unsupported: // as the check hooks of transaction_read_only and transaction_isolation say
		return strings.HasPrefix(pgErr.Routine, "call_") && strings.HasSuffix(pgErr.Routine, "_check_hook")
	case sqlstate.NotInState:
		return pgErr.Routine == "pg_current_wal_lsn"
	case sqlstate.ReadOnly:
		return pgErr.Routine == "PreventCommandDuringRecovery"
	}
	return false
}

// ErrStandby is the NotReadyError of a server that is a standby.
var ErrStandby = fmt.Errorf("%w: it is a standby (in recovery); connect to the primary, as with target_session_attrs=read-write", &NotReadyError{Unsupported})

// NameStandby adds the remedy to an error that says that the server is a standby.
func NameStandby(err error) error {
	if !inRecovery(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStandby, err)
}
