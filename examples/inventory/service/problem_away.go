package service

import (
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// lockServiceProblem is what an error of the lock service is to a client: it can't
// be reached, or it answers and grants nothing, until an operator does something.
func lockServiceProblem(err error) *problem {
	away := new(fence.UnavailableError)
	errors.As(err, &away)
	switch away.Reason {
	case fence.WentBack:
		return wentBack()
	case fence.InvalidEpoch:
		return undone("lock-service-back", "The lock service's epoch can't be read", "An operator has to correct it.", lockService)
	case fence.NoSpace:
		return undone("lock-service-full", "The lock service is out of space", "An operator has to make room in it.", lockService)
	case fence.Denied:
		return undone("lock-service-refuses", "The lock service denies this server access", "An operator has to give it credentials and rights.", lockService)
	}
	return undone("dependency-away", "The lock service can't be reached", "", lockService)
}

func wentBack() *problem {
	return undone("lock-service-back", "The lock service went back to an older state", "An operator has to raise its epoch.", lockService)
}

// databaseAway reports whether err says that the database can't be reached, or
// not for now.
func databaseAway(err error) bool {
	var (
		connect   *pgconn.ConnectError
		transient *postgres.TransientError
		server    *pgconn.PgError
		network   *net.OpError
	)
	switch {
	case errors.Is(err, postgres.ErrUnavailable), errors.Is(err, guard.ErrStoreUnavailable), errors.Is(err, errSlowDatabase),
		errors.As(err, &connect), errors.As(err, &transient), errors.As(err, &network),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.As(err, &server):
		// Connection exceptions, too many connections, shutting down.
		return strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "53") || strings.HasPrefix(server.Code, "57P")
	}
	return false
}
