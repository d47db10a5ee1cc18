package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// maxPrepared is how many statements the store keeps prepared on one connection, at most.
const maxPrepared = 256

// preparedKey is where a connection's custom data holds its preparedStatements.
const preparedKey = "fencekit: prepared statements"

// preparedStatements are the statements that the store has prepared on one connection, by their
// SQL: those of batches, and the first ones of transactions. What an operation
// runs after its first statement is in pgx's own cache.
type preparedStatements map[string]*preparedStatement

type preparedStatement struct {
	*pgconn.StatementDescription
	outdated bool // an error has shown that it has to be prepared anew
}

func preparedOn(conn *pgx.Conn) preparedStatements {
	data := conn.PgConn().CustomData()
	statements, ok := data[preparedKey].(preparedStatements)
	if !ok {
		statements = preparedStatements{}
		data[preparedKey] = statements
	}
	return statements
}

// preparedName is a name that no other SQL has: behind a pooler that exchanges connections
// the name must not reach another statement.
func preparedName(sql string) string {
	digest := sha256.Sum256([]byte(sql))
	return wire.PreparedPrefix + hex.EncodeToString(digest[:24])
}

// usable returns the description of sql; nil if it has to be prepared.
func (p preparedStatements) usable(sql string) *pgconn.StatementDescription {
	if known := p[sql]; known != nil && !known.outdated {
		return known.StatementDescription
	}
	return nil
}

// prepare returns the description of sql, and prepares it if conn has not. It does so only in the
// modes in which pgx does, and with a name only where pgx uses one. It returns nil in other modes,
// if conn has maxPrepared already, and if the server can't prepare sql. It fails only if the
// connection is lost.
func prepare(ctx context.Context, conn *pgx.Conn, sql string, mode pgx.QueryExecMode) (*pgconn.StatementDescription, error) {
	statements := preparedOn(conn)
	if description := statements.usable(sql); description != nil {
		return description, nil
	}
	name, known := "", statements[sql]
	switch {
	case mode == pgx.QueryExecModeCacheStatement:
		name = preparedName(sql)
	case mode != pgx.QueryExecModeCacheDescribe:
		return nil, nil
	}
	switch {
	case known == nil && len(statements) >= maxPrepared:
		return nil, nil
	case known != nil:
		if err := conn.PgConn().Deallocate(ctx, known.Name); err != nil {
			return nil, err
		}
		delete(statements, sql)
	}
	description, err := conn.PgConn().Prepare(ctx, name, sql, nil)
	switch {
	case conn.IsClosed():
		return nil, err
	case err != nil:
		return nil, nil
	}
	statements[sql] = &preparedStatement{StatementDescription: description}
	return description, nil
}

// outdateIfUnfit reports whether err shows that one of these statements no longer fits. If so, all
// of them are prepared anew before their next use. If the server no longer has one, that goes for
// each of the connection's: SQL such as DISCARD ALL removes them all.
func outdateIfUnfit(conn *pgx.Conn, err error, sql ...string) bool {
	if !unfit(err) {
		return false
	}
	if sqlstate.Of(err) == sqlstate.NoStatement {
		sql = slices.Collect(maps.Keys(preparedOn(conn)))
	}
	preparedOn(conn).outdate(sql...)
	return true
}

// outdate marks statements that have to be prepared anew before their next use.
func (p preparedStatements) outdate(sql ...string) {
	for _, sql := range sql {
		if known := p[sql]; known != nil {
			known.outdated = true
		}
	}
}

// unfit reports whether err may be due to what was true when the statement was prepared, such as
// the types of its parameters and results, so that the same SQL may succeed if it is parsed anew.
func unfit(err error) bool {
	if err == nil {
		return false
	}
	switch sqlstate.Of(err) {
	case sqlstate.NoStatement, sqlstate.BadType, sqlstate.NoFunction, sqlstate.BadText, sqlstate.BadBinary, sqlstate.Protocol:
		return true
	}
	return replanned(err)
}

// queue adds a statement of the extended protocol to a batch. description is nil if the server
// infers the types of its parameters.
func queue(batch *pgconn.Batch, sql string, description *pgconn.StatementDescription, encoded *pgx.ExtendedQueryBuilder) {
	switch {
	case description == nil:
		batch.ExecParams(sql, encoded.ParamValues, nil, encoded.ParamFormats, encoded.ResultFormats)
	case description.Name == "":
		batch.ExecParams(sql, encoded.ParamValues, description.ParamOIDs, encoded.ParamFormats, encoded.ResultFormats)
	default:
		batch.ExecStatement(description, encoded.ParamValues, encoded.ParamFormats, encoded.ResultFormats)
	}
}

// next returns the next result. If there is none it reads the answer to its end.
func next(results *pgconn.MultiResultReader) (*pgconn.ResultReader, error) {
	if results.NextResult() {
		return results.ResultReader(), nil
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	return nil, errLacksResult
}

var errLacksResult = errors.New("postgres: the answer lacks a result: a pooler in between may have made it up")

// exchange bounds the wait for the answer to a write. The server's own limits on statements don't:
// they are in force only once it has the begin check, and an answer that is lost never comes.
type exchange struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// boundExchange begins an exchange of n statements. Its context is that of the write and of the
// reads; the caller calls end.
func (t *txn) boundExchange(ctx context.Context, n int) (context.Context, exchange) {
	limit := time.Duration(n)*t.store.cfg.StatementTimeout + t.store.cfg.times.Network
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { // mutant: first-statement-without-an-end
		cancel(fmt.Errorf("%w: no answer within %v (postgres.Config.StatementTimeout is %v, and the network has %v)", storage.ErrStoreUnavailable, limit, t.store.cfg.StatementTimeout, t.store.cfg.times.Network))
	})
	return ctx, exchange{timer, cancel}
}

// answered lifts the bound: what is read now is read at the pace of the caller.
func (e exchange) answered() { e.timer.Stop() }

func (e exchange) end() {
	e.timer.Stop()
	e.cancel(nil)
}

// cause returns err. If the bound of the exchange has ended ctx, it returns that instead, as a
// storage.ErrStoreUnavailable.
func cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if because := context.Cause(ctx); because != nil && errors.Is(because, storage.ErrStoreUnavailable) {
		return because
	}
	return err
}
