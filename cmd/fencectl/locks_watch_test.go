package main

import (
	"bufio"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestLocksWatch_WritesALineForEachChange(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	l := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix})
	held, err := l.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), "hidden")
	require.NoError(t, err)
	start := func(format string) (*bufio.Scanner, func() int) {
		cmd := clitest.Child(t, nil, append([]string{"locks", "watch", "-o", format, "--resource", "sku/*"}, flags...)...)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		return bufio.NewScanner(stdout), func() int {
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			return clitest.ExitCode(t, cmd.Wait)
		}
	}
	lines, endLines := start("jsonl")
	text, endText := start("table")
	expect := func(kind inspect.ChangeKind) {
		var c lockChange
		require.NoError(t, json.Unmarshal([]byte(next(t, lines)), &c))
		require.Equal(t, lockChange{c.At, kind, "sku/42", held.Grant().Token, 1, held.Grant().Holder}, c)
		require.WithinDuration(t, time.Now(), c.At, time.Minute)
		require.Equal(t, string(kind), strings.TrimSpace(strings.Split(next(t, text), "  ")[1]))
	}
	expect(inspect.ChangeHolds)
	none := clitest.Child(t, nil, append([]string{"locks", "watch", "--resource", "none"}, flags...)...)
	stderr, err := none.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, none.Start())
	require.Equal(t, `nothing that matches "none" is held or waited for under `+prefix+"/locks/", next(t, bufio.NewScanner(stderr)))
	require.NoError(t, none.Process.Signal(syscall.SIGINT))
	require.Equal(t, cli.ExitOK, clitest.ExitCode(t, none.Wait))
	require.NoError(t, held.Release(t.Context()))
	expect(inspect.ChangeReleased)
	require.Equal(t, cli.ExitOK, endLines())
	require.Equal(t, cli.ExitOK, endText())
	clitest.RequireUsageError(t, newRoot(), "locks watch -o csv", "watch writes table, json or jsonl", "fencectl locks watch")
}

func TestLocksEvict_TakesTheLockFromItsHolderOnly(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	a := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix})
	b := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix})
	held, err := a.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	waiting := acquireBehind(t, b, "sku/42", 1, flags)
	waits := queued(t, "sku/42", flags)[1]
	evict := func(token fence.Token, reason string) clitest.Ending {
		return fencectl(t, append([]string{"locks", "evict", "sku/42", "--expected-token", token.String(), "--reason", reason, "-o", "json"}, flags...)...)
	}

	got := evict(waits.Token, "it hangs")
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stderr, held.Grant().Holder+" holds it with token "+held.Grant().Token.String())
	require.Empty(t, got.Stdout)

	got = evict(held.Grant().Token, "it hangs")
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "evicted "+held.Grant().Holder+" from sku/42; next is "+waits.Holder+" with token "+waits.Token.String()+"\n", got.Stderr)
	var done eviction
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &done))
	require.Equal(t, held.Grant(), fence.Grant{Resource: done.Resource, Epoch: done.Epoch, Token: done.Token, Holder: done.Holder})
	require.Equal(t, "it hangs", done.Reason)
	require.Contains(t, done.By, "@")
	next := <-waiting
	require.Equal(t, waits.Token, next.Grant().Token)
	<-held.Done()

	got = evict(next.Grant().Token, "so does this")
	require.Contains(t, got.Stderr, "no process waits")
	require.Equal(t, cli.ExitViolated, evict(next.Grant().Token, "again").Code)
	records := fencectl(t, append([]string{"locks", "evictions", "-o", "jsonl"}, flags...)...).Stdout
	require.Equal(t, 2, strings.Count(records, "\n"))
	require.Contains(t, records, `"reason":"it hangs"`)

	clitest.RequireUsageError(t, newRoot(), "locks evict sku/42 --reason x", "--expected-token is required", "fencectl locks evict")
	clitest.RequireUsageError(t, newRoot(), "locks evict sku/42 --expected-token 5", "--reason is required", "fencectl locks evict")
	clitest.RequireUsageError(t, newRoot(), "locks evict --expected-token 5", "takes one argument, RESOURCE", "fencectl locks evict")
}
