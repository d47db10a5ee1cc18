package pglock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/wire"
)

// database calls the functions of the schema, each in a transaction of its own, with one message of the simple
// protocol: a pooler can't come between its parts.
type database struct {
	pool   *pgxpool.Pool
	schema string // quoted
	limit  time.Duration
}

// sql is a call of a function, whose arguments are numbers, booleans and texts without quotes.
func (d *database) sql(function string, args ...any) string {
	list := make([]string, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case nil:
			list[i] = "null"
		case string:
			list[i] = "'" + arg + "'"
		default:
			list[i] = fmt.Sprint(arg)
		}
	}
	return "select * from " + d.schema + "." + function + "(" + strings.Join(list, ", ") + ")"
}

func encode(text string) string { return hex.EncodeToString([]byte(text)) }

// encodeAll is an array literal. Texts are in hexadecimal whatever the session's encoding is.
func encodeAll(ps []*lease, text func(*lease) string) string {
	encoded := make([]string, len(ps))
	for i, p := range ps {
		encoded[i] = encode(text(p))
	}
	return "{" + strings.Join(encoded, ",") + "}"
}

func decode(text string) string {
	decoded, _ := hex.DecodeString(text)
	return string(decoded)
}

// call calls a function on a connection of the pool.
func (d *database) call(ctx context.Context, function string, args ...any) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	conn, _, err := wire.Acquire(ctx, d.pool)
	if err != nil {
		return nil, err
	}
	defer conn.Release() // which closes it within a transaction
	return d.exec(ctx, conn.Conn().PgConn(), d.sql(function, args...))
}

// doubtError is an error after which the transaction may be, or become, committed.
type doubtError struct{ error }

func (e doubtError) Unwrap() error { return e.error }

func inDoubt(err error) bool { return errors.As(err, new(doubtError)) }

func (d *database) exec(ctx context.Context, pg *pgconn.PgConn, sql string) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	answer, outcome, err := wire.SendOwn(ctx, pg, fmt.Sprintf("begin; set transaction isolation level read committed, read write; set local statement_timeout = %d; set local lock_timeout = %[1]d; %s; commit", d.limit.Milliseconds(), sql))
	var pgErr *pgconn.PgError
	switch {
	case outcome == wire.Committed:
		return answer.Rows, nil
	case outcome == wire.InDoubt, errors.As(err, &pgErr) && pgErr.SeverityUnlocalized != "ERROR": // the session may end behind COMMIT
		return nil, doubtError{err}
	case !pg.IsClosed() && pg.TxStatus() != 'I':
		_ = pg.Exec(ctx, "rollback").Close()
	}
	return nil, err
}

// unavailable says what is wrong with the database, and what to do about it.
func unavailable(op string, err error) error {
	var pgErr *pgconn.PgError
	code := ""
	if errors.As(err, &pgErr) {
		code = pgErr.Code
	}
	reason, text := fence.UnavailableReason(""), ""
	switch {
	case err.Error() == "closed pool": // the pool has no other sign
		text = "the pool was closed before the Locker: close the Guard first, then the Locker, then the pool"
	case wire.Limit(err) != "":
		text = wire.Limit(err)
	case code == "25006", code == "ZF016", code == "0A000", code == "55000":
		reason, text = fence.Unreachable, "the server is a standby; connect to the primary, as with target_session_attrs=read-write"
	case code == "53100":
		reason, text = fence.NoSpace, "the database is out of space: nothing can be acquired or renewed"
	case code == "42501", strings.HasPrefix(code, "28"):
		reason, text = fence.Denied, "check the login, and that it is a member of an app role: as the schema's owner run \"fencectl migrate up --app-role ROLE\""
	case code == "42883", code == "3F000", code == "42P01":
		text = "the schema is missing or older than this version: run \"fencectl migrate up\", or call Guard.Migrate"
	case code == "", code == "55P03", code == "57014", code == "53300", strings.HasPrefix(code, "57P"), strings.HasPrefix(code, "08"):
		reason, text = fence.Unreachable, "no answer from the database"
	default:
		text = "the database fails"
	}
	return &fence.UnavailableError{Call: op, Reason: reason, Err: fmt.Errorf("pglock: %s: %w", text, err)}
}

// failed is the error of a request that err has ended. If a deadline of the caller's did, the database did not
// answer in time.
func failed(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return unavailable(op, err)
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ended(ctx, op)
	}
	return &fence.UnavailableError{Call: op, Reason: fence.Unreachable, Err: fmt.Errorf("pglock: no answer from the database yet: %w", ended(ctx, op))}
}
