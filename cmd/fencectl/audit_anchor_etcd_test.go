package main

import (
	"crypto/rand"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// published returns the checkpoint in etcd.
func published(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	got, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return string(got.Kvs[0].Value)
}

// The checkpoint in etcd is the last one. A log that was put back, even with its checkpoint, is
// refused by it, and doesn't replace it.
func TestAuditAnchor_KeepsTheLastCheckpointInEtcd(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	prefix, flags := onEtcd(t)
	client := etcdserver.Client(t)
	key := prefix + "/anchors/example.com/shop"
	flags = append(flags, "--etcd", "--print")

	write(t, f.dsn, "sku/1")
	got := f.anchor(t, flags...)
	require.Equal(t, ended(cli.ExitOK, published(t, client, key), ""), got)
	older, checkpoint := read(t, f.log), read(t, f.log+".checkpoint")

	write(t, f.dsn, "sku/1", "sku/2")
	require.Equal(t, cli.ExitOK, f.anchor(t).Code, "a run without etcd, which the next one makes up for")
	got = f.anchor(t, flags...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.NotEqual(t, string(checkpoint), got.Stdout)
	require.Equal(t, got.Stdout, published(t, client, key))

	require.NoError(t, os.WriteFile(f.log, older, 0o600))
	require.NoError(t, os.WriteFile(f.log+".checkpoint", checkpoint, 0o600))
	put := f.anchor(t, flags...)
	require.Equal(t, cli.ExitViolated, put.Code)
	require.Contains(t, put.Stderr, "the log ends after 1 records, and a checkpoint covers 3")
	require.Equal(t, got.Stdout, published(t, client, key))

	_, err := client.Put(t.Context(), key, "hello")
	require.NoError(t, err)
	put = f.anchor(t, flags...)
	require.Equal(t, cli.ExitViolated, put.Code)
	require.Contains(t, put.Stderr, "key "+key+" in etcd: anchor: not what was signed")
}

// A checkpoint replaces only the one that the log was compared with.
func TestPublish_LeavesAKeyThatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	key := "fencectl-" + rand.Text()
	require.NoError(t, publish(t.Context(), client, key, 0, &anchor.Checkpoint{Note: "first"}))
	got, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	first := got.Kvs[0].ModRevision
	require.NoError(t, publish(t.Context(), client, key, first, &anchor.Checkpoint{Note: "second"}))
	for _, revision := range []int64{0, first} {
		err := publish(t.Context(), client, key, revision, &anchor.Checkpoint{Note: "other"})
		require.ErrorContains(t, err, "was changed during this run")
		require.Equal(t, "second", published(t, client, key))
	}
}
