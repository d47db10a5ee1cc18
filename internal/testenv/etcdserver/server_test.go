package etcdserver

import (
	"context"
	"testing"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/stretchr/testify/require"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func startEtcd(t *testing.T, cfg *Config) *Server {
	t.Helper()
	e, err := Start(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func TestStart_SaysWhatIsWrong(t *testing.T) {
	ctx := testContext(t)
	_, err := Start(ctx, &Config{ExtraFlags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Start(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestStart_UsesTheOneOfTheEnvironment(t *testing.T) {
	ctx := testContext(t)
	mine := startEtcd(t, nil)
	t.Setenv(EndpointsVar, mine.Endpoint())
	e, err := Start(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, mine.Endpoint(), e.Endpoint())
	require.NoError(t, e.Stop(ctx))
	for _, err := range []error{e.Kill(), e.Restart(ctx), e.Pause(), e.Resume()} {
		require.ErrorIs(t, err, process.ErrNotOurs)
		require.ErrorContains(t, err, EndpointsVar)
	}
	require.NoError(t, mine.ping(ctx))

	require.NoError(t, mine.Kill())
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = Start(short, nil)
	require.ErrorContains(t, err, EndpointsVar)
}
