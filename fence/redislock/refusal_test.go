package redislock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

func requireUnavailable(t testing.TB, err error, reason fence.UnavailableReason) {
	t.Helper()
	away := new(fence.UnavailableError)
	require.ErrorAs(t, err, &away)
	require.Equal(t, reason, away.Reason, "%v", err)
}

func until(t testing.TB, what func() bool) {
	t.Helper()
	require.Eventually(t, what, time.Minute, 5*time.Millisecond)
}

// setting sets settings, each a name and a value.
func setting(pairs ...string) func(t testing.TB, c *redis.Client) {
	return func(t testing.TB, c *redis.Client) {
		for i := 0; i < len(pairs); i += 2 {
			require.NoError(t, c.ConfigSet(patient(t), pairs[i], pairs[i+1]).Err())
		}
	}
}

func replicaOf(addr string) func(t testing.TB, c *redis.Client) {
	return func(t testing.TB, c *redis.Client) {
		host, port, _ := strings.Cut(addr, ":")
		require.NoError(t, c.ReplicaOf(patient(t), host, port).Err())
	}
}

var promote = replicaOf("no:one")

func says(t testing.TB, c *redis.Client, section, line string) func() bool {
	return func() bool { return strings.Contains(c.Info(patient(t), section).Val(), line) }
}

// Check and an acquisition say alike why a real server takes none, whether it helps to call again, and what to set.
// Retryable goes on as soon as the server does.
func TestRefusal_CheckAndAcquireSayWhy(t *testing.T) {
	t.Parallel()
	type act = func(t testing.TB, c *redis.Client)
	for answer, test := range map[string]struct {
		reason      fence.UnavailableReason
		again       bool
		text        string
		cause, mend act
		settings    []string
	}{
		"OOM":        {fence.NoSpace, false, "maxmemory", setting("maxmemory", "1"), setting("maxmemory", "0"), nil},
		"NOREPLICAS": {fence.Unreachable, true, "min-replicas-to-write", setting("min-replicas-to-write", "1"), setting("min-replicas-to-write", "0"), nil},
		"READONLY":   {fence.Unreachable, true, "connect to the primary", replicaOf("127.0.0.1:1"), promote, nil},
		"MASTERDOWN": {fence.Unreachable, true, "connect to the primary", func(t testing.TB, c *redis.Client) {
			setting("replica-serve-stale-data", "no")(t, c)
			replicaOf("127.0.0.1:1")(t, c)
		}, promote, nil},
		"NOPERM": {fence.Denied, false, "give the client's user", func(t testing.TB, c *redis.Client) {
			require.NoError(t, c.Do(patient(t), "acl", "setuser", "default", "-incr").Err())
		}, func(t testing.TB, c *redis.Client) {
			require.NoError(t, c.Do(patient(t), "acl", "setuser", "default", "+incr").Err())
		}, nil},
		"MISCONF": {fence.NoSpace, false, "stop-writes-on-bgsave-error", func(t testing.TB, c *redis.Client) {
			require.NoError(t, os.MkdirAll(filepath.Join(c.ConfigGet(patient(t), "dir").Val()["dir"], "dump.rdb", "x"), 0o755))
			setting("save", "3600 1")(t, c)
			require.NoError(t, c.BgSave(patient(t)).Err())
			until(t, says(t, c, "persistence", "rdb_last_bgsave_status:err"))
		}, setting("save", ""), nil},
		"BUSY": {fence.Unreachable, true, "script kill", func(t testing.TB, c *redis.Client) {
			setting("busy-reply-threshold", "1")(t, c)
			forever := redis.NewClient(c.Options())
			t.Cleanup(func() { _ = forever.Close() })
			go forever.Eval(context.Background(), "while true do end", nil)
			until(t, func() bool { return c.Ping(patient(t)).Err() != nil })
		}, func(t testing.TB, c *redis.Client) { require.NoError(t, c.ScriptKill(patient(t)).Err()) }, nil},
		"CLUSTERDOWN": {fence.Unreachable, true, "cluster info", func(testing.TB, *redis.Client) {}, func(t testing.TB, c *redis.Client) {
			require.NoError(t, c.ClusterAddSlotsRange(patient(t), 0, 16383).Err())
			until(t, func() bool { return strings.Contains(c.ClusterInfo(patient(t)).Val(), "cluster_state:ok") })
		}, []string{"cluster-enabled yes"}},
		"LOADING": {fence.Unreachable, true, "is starting", func(t testing.TB, c *redis.Client) {
			primary := server(t, "rdbcompression no", "repl-diskless-sync-delay 0")
			fill := "for n = 1, 1000 do redis.call('set', n, string.rep('x', 4096)) end"
			require.ErrorIs(t, client(t, primary).Eval(patient(t), fill, nil).Err(), redis.Nil)
			// This takes longer than the test, unless that ends it.
			setting("key-load-delay", "100000", "loading-process-events-interval-bytes", "1024")(t, c)
			replicaOf(primary.Addr())(t, c)
			until(t, says(t, c, "persistence", "\nloading:1"))
		}, func(t testing.TB, c *redis.Client) {
			setting("key-load-delay", "0")(t, c)
			until(t, says(t, c, "persistence", "\nloading:0"))
			promote(t, c)
		}, nil},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			s := server(t, test.settings...)
			operator, c := client(t, s), client(t, s)
			test.cause(t, operator)
			asked := 0
			c.AddHook(hook(func(script any) {
				if script != acquireScript {
					return
				}
				if asked++; test.again && asked == 5 { // Check was the first, and three are tried
					test.mend(t, operator)
				}
			}))
			l := locker(t, c, &Config{PollInterval: time.Millisecond})
			err := l.Check(patient(t))
			requireUnavailable(t, err, test.reason)
			require.ErrorContains(t, err, test.text)
			g, err := guard.New(l, memory.NewStore(), nil)
			require.NoError(t, err)
			runs := 0
			err = guard.Do(patient(t), g, "r", func(context.Context, *memory.Tx) error { runs++; return nil }, guard.Retryable())
			if test.again {
				require.NoError(t, err)
				require.Equal(t, 1, runs)
			} else {
				requireUnavailable(t, err, test.reason)
				require.ErrorContains(t, err, test.text)
				require.False(t, guard.SafeToRetry(err))
				test.mend(t, operator)
				require.NoError(t, guard.Do(patient(t), g, "r", func(context.Context, *memory.Tx) error { return nil }))
			}
			require.NoError(t, l.Check(patient(t)))
			require.NoError(t, g.Close(patient(t)))
			keys, err := operator.Keys(patient(t), "*check*").Result()
			require.NoError(t, err)
			require.Empty(t, keys, "what Check left")
		})
	}
}

// Redis 6 answers so, with the command's answer inside; and a cluster that moves keys.
func TestRefusal_IsFoundInWhatAScriptAnswers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"ERR Error running script (call to f_6b): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.", "TRYAGAIN Multiple keys request during rehashing of slot"} {
		reason, err := service{}.Explain(redisError{errors.New(text)})
		require.Equal(t, fence.Unreachable, reason)
		err = &fence.UnavailableError{Err: err}
		require.True(t, guard.SafeToRetry(err))
	}
}

type redisError struct{ error }

func (redisError) RedisError() {}

// hook is called before each script.
type hook func(script any)

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			h(cmd.Args()[1])
		}
		return next(ctx, cmd)
	}
}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
