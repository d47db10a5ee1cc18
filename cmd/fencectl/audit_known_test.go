package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

// verify verifies the database, or an export, with the log's public key.
func (f anchorFiles) verify(t *testing.T, args ...string) clitest.Ending {
	t.Helper()
	return fencectl(t, append([]string{"audit", "verify", "--database-url", f.dsn, "--key", f.key + ".pub"}, args...)...)
}

// shorten removes the last entry of sku/1, and puts its fence back to the one before: a history
// that fits in itself.
const shorten = `delete from fence.history h using fence.resource r where r.id = h.resource and r.name = 'sku/1' and h.seq = r.seq;
	update fence.resource r set seq = e.seq, tx = e.tx, hash = e.hash from fence.history e where e.resource = r.id and r.name = 'sku/1' and e.seq = r.seq - 1`

// A proof finds what a database or an export lacks, with the public key and nothing else.
func TestAuditVerify_WithAProofAndWithoutTheLog(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	write(t, f.dsn, "sku/1", "sku/2")
	require.Equal(t, cli.ExitOK, f.anchor(t).Code)
	dir := t.TempDir()
	proofs := map[string]string{}
	for _, resource := range []string{"sku/1", "sku/2"} {
		got := fencectl(t, "audit", "prove", resource, "--log", f.log, "--key", f.key+".pub")
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		proofs[resource] = filepath.Join(dir, filepath.Base(resource)+".tlog-proof")
		require.NoError(t, os.WriteFile(proofs[resource], []byte(got.Stdout), 0o600))
	}
	require.NoError(t, os.Remove(f.log))
	whole, short := filepath.Join(dir, "whole"), filepath.Join(dir, "short")
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "export", "--database-url", f.dsn, "--resource", "sku/1", "--out", whole).Code)
	got := f.verify(t, "--proof", proofs["sku/1"], "--proof", proofs["sku/2"])
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "2 anchored heads")

	tamper(t, f.dsn, shorten)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "export", "--database-url", f.dsn, "--out", short).Code)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "verify", "--export", short).Code, "it fits in itself")
	for _, where := range [][]string{nil, {"--export", short}} {
		got = f.verify(t, append(where, "--proof", proofs["sku/1"])...)
		require.Equal(t, cli.ExitViolated, got.Code, got.Stderr)
		require.Contains(t, got.Stdout, "older state")
		require.Equal(t, cli.ExitOK, f.verify(t, append(where, "--proof", proofs["sku/2"])...).Code)
	}
	require.Equal(t, cli.ExitOK, f.verify(t, "--export", whole, "--proof", proofs["sku/1"]).Code)

	text := read(t, proofs["sku/1"])
	text[40] ^= 1
	require.NoError(t, os.WriteFile(proofs["sku/1"], text, 0o600))
	got = f.verify(t, "--export", whole, "--proof", proofs["sku/1"])
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stderr, proofs["sku/1"]+": anchor: not what was signed")
}
