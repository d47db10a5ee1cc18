package operation

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// closedConn returns a closed connection of this configuration, with these types; nil if pgx makes none.
// pgx has no other way to one than to connect, here to a server that lets everyone in and goes.
func closedConn(cfg *pgx.ConnConfig, types *pgtype.Map) *pgx.Conn {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		backend := pgproto3.NewBackend(server, server)
		if _, err := backend.ReceiveStartupMessage(); err != nil {
			return
		}
		backend.Send(&pgproto3.AuthenticationOk{})
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = backend.Flush()
	}()
	cfg.Host, cfg.Fallbacks, cfg.TLSConfig, cfg.Tracer = "/", nil, nil, nil
	cfg.RequireAuth, cfg.ChannelBinding = "", ""
	cfg.AfterConnect, cfg.AfterNetConnect, cfg.ValidateConnect = nil, nil, nil
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return client, nil }
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		_ = client.Close()
		return nil
	}
	_ = conn.Close(context.Background())
	*conn.TypeMap() = *types
	return conn
}
