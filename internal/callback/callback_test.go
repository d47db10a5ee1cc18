package callback_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/callback"
)

func explode() { panic("boom") }

func TestRun_SaysHowACallbackEnded(t *testing.T) {
	t.Parallel()
	ran := false
	require.Nil(t, callback.Run(func() { ran = true }))
	require.True(t, ran, "Run waits for it")

	failure := callback.Run(explode)
	require.Equal(t, "boom", failure.Panic)
	require.Contains(t, failure.Stack, "explode", "the stack of the panic is whole")
	require.Equal(t, callback.Goexit, callback.Run(runtime.Goexit).Panic)
}

func TestLogger_PassesOnAllThatItIsGiven(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := callback.Logger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	l.Debug("not enabled")
	l.With("resource", "sku/42").WithGroup("g").Info("claimed", "token", 7)
	require.Equal(t, "level=INFO msg=claimed resource=sku/42 g.token=7\n", log.String())
	callback.Logger(nil).Error("it is not logged")
}

type endingHandler struct{ end func() }

func (h endingHandler) Enabled(context.Context, slog.Level) bool  { h.end(); return true }
func (h endingHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }
func (h endingHandler) WithAttrs([]slog.Attr) slog.Handler        { h.end(); return h }
func (h endingHandler) WithGroup(string) slog.Handler             { h.end(); return h }

func TestLogger_OfAHandlerThatDoesNotReturnDoes(t *testing.T) {
	t.Parallel()
	for _, end := range []func(){explode, runtime.Goexit} {
		l := callback.Logger(slog.New(endingHandler{end}))
		l.With("resource", "sku/42").WithGroup("g").Info("claimed")
		require.NoError(t, l.Handler().Handle(t.Context(), slog.Record{}))
	}
}
