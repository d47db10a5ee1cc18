package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestTry_ServesOnServersOfItsOwn(t *testing.T) {
	t.Parallel()
	cfg, err := parseTry([]string{"-listen", "127.0.0.1:0"})
	require.NoError(t, err)
	s := startRunning(t, func(ctx context.Context, out io.Writer, log *slog.Logger) error { return try(ctx, cfg, out, log) })
	require.Equal(t, http.StatusOK, s.get("/readyz").status)
	require.Equal(t, 98, s.deduct("k", `{"qty":2}`).deduction(t).Available)
}

func TestInit_PreparesADatabaseOnce(t *testing.T) {
	dsn := pgserver.Database(t)
	require.Equal(t, exitOK, run([]string{"init", "-postgres", dsn}))
	require.Equal(t, http.StatusOK, startService(t, config(t, dsn)).get("/readyz").status)
	require.Equal(t, exitEnvironment, run([]string{"init", "-postgres", dsn}))
	require.Equal(t, exitOK, run([]string{"init", "-help"}))
}

func TestInit_SaysWhatItDid(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, initialize(t.Context(), pgserver.Database(t), &out))
	require.Regexp(t, `^made the tables in database ".+", and put 100 units of "lamp-7" in stock, in 4 lots\n$`, out.String())
}
