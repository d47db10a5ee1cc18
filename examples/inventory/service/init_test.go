package service

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// What is there is left as it is, so each start of a deployment may run it.
func TestInit_PreparesADatabaseOnce(t *testing.T) {
	dsn := pgserver.Database(t)
	require.NoError(t, Initialize(t.Context(), dsn, io.Discard))
	require.Equal(t, http.StatusOK, startService(t, config(t, dsn)).get("/readyz").status)
	var out bytes.Buffer
	require.NoError(t, Initialize(t.Context(), dsn, &out))
	require.Contains(t, out.String(), `100 units of "lamp-7"`)
}
