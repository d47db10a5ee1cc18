package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// maxPrepared bounds how many statements of batches one connection keeps prepared. The
// server keeps them for as long as the connection lives.
const maxPrepared = 256

// preparedKey is where a connection's custom data holds its prepared statements.
const preparedKey = "fencekit: prepared statements of batches"

// prepare returns the description of sql if conn has it prepared, or if mayPrepare can
// prepare it; else nil. It fails only if the connection is lost.
func prepare(ctx context.Context, conn *pgx.Conn, sql string, mayPrepare bool) (*pgconn.StatementDescription, error) {
	data := conn.PgConn().CustomData()
	prepared, _ := data[preparedKey].(map[string]*pgconn.StatementDescription)
	if description := prepared[sql]; description != nil {
		return description, nil
	}
	if !mayPrepare || len(prepared) >= maxPrepared {
		return nil, nil
	}
	description, err := conn.Prepare(ctx, sql, sql)
	switch {
	case conn.IsClosed():
		return nil, err
	case err != nil:
		return nil, nil
	}
	if prepared == nil {
		prepared = map[string]*pgconn.StatementDescription{}
		data[preparedKey] = prepared
	}
	prepared[sql] = description
	return description, nil
}
