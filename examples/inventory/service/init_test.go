package service

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestInit_PreparesADatabaseOnce(t *testing.T) {
	dsn := pgserver.Database(t)
	require.NoError(t, Initialize(t.Context(), dsn, io.Discard))
	require.Equal(t, http.StatusOK, startService(t, config(t, dsn)).get("/readyz").status)
	require.ErrorContains(t, Initialize(t.Context(), dsn, io.Discard), "already exists")
}

func TestInit_SaysWhatItDid(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, Initialize(t.Context(), pgserver.Database(t), &out))
	require.Regexp(t, `^made the tables in database ".+", and put 100 units of "lamp-7" in stock, in 4 lots\n$`, out.String())
}
