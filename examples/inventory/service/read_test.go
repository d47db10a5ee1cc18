package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guardhttp"
)

// A read that nothing guards may be asked again where the database is away, and not
// where its SQL is wrong.
func TestWithin_TellsADatabaseThatIsAwayFromAMistake(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"database stops":       {&pgconn.PgError{Code: "57P01"}, 503},
		"too many connections": {&pgconn.PgError{Code: "53300"}, 503},
		"connection lost":      {&pgconn.PgError{Code: "08006"}, 503},
		"cut":                  {io.ErrUnexpectedEOF, 503},
		"slow":                 {context.DeadlineExceeded, 503},
		"a mistake in our SQL": {&pgconn.PgError{Code: "42703"}, 500},
		"anything else":        {errors.New("what?"), 500},
		"nothing":              {nil, http.StatusOK},
	} {
		err := within(t.Context(), patience, func(context.Context) error {
			if c.err == nil {
				return nil
			}
			return fmt.Errorf("reading: %w", c.err)
		})
		require.Equal(t, c.status, guardhttp.Status(err), name)
		require.Equal(t, c.err == nil, err == nil, name)
	}
}
