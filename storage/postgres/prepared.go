package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
