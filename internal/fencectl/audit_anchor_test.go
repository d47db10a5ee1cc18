package fencectl

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// write runs a guarded transaction of each resource.
func write(t *testing.T, dsn string, resources ...string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	g := guardtest.New(t, store)
	for _, resource := range resources {
		require.NoError(t, guard.Do(t.Context(), g, resource, func(context.Context, pgx.Tx) error { return nil }))
	}
	require.NoError(t, g.Close(t.Context()))
}

// anchorFiles are a database, and the log and the key of its anchors.
type anchorFiles struct {
	dsn, log, key string
}

func newAnchorFiles(t *testing.T) anchorFiles {
	t.Helper()
	dir := t.TempDir()
	f := anchorFiles{migrated(t), filepath.Join(dir, "heads"), filepath.Join(dir, "key")}
	got := fencectl(t, "audit", "keygen", "example.com/shop", "--out", f.key)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, got.Stdout, string(read(t, f.key+".pub")))
	return f
}

// anchor anchors, and begins the log if it is missing.
func (f anchorFiles) anchor(t *testing.T, more ...string) clitest.Ending {
	t.Helper()
	if _, err := os.Stat(f.log); errors.Is(err, fs.ErrNotExist) {
		more = append(more, "--begin")
	}
	return fencectl(t, append([]string{"audit", "anchor", "--database-url", f.dsn, "--log", f.log, "--key", f.key}, more...)...)
}

// rewind puts all fences back by one position, as a superuser could.
func (f anchorFiles) rewind(t *testing.T) {
	t.Helper()
	require.NoError(t, execute(t, connect(t, f.dsn), "update fence.resource set seq = seq - 1"))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

func TestAuditAnchor_RecordsAndFinds(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	write(t, f.dsn, "sku/1", "sku/2")
	require.Equal(t, ended(cli.ExitOK, tableOf("log,records,resources,recorded,violations\nexample.com/shop,2,2,2,0"), ""), f.anchor(t))

	write(t, f.dsn, "sku/2", "sku/3")
	require.Equal(t, cli.ExitOK, f.anchor(t).Code)
	f.rewind(t)
	got := f.anchor(t, "-o", "json")
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stderr, "the database contradicts the log in 3 resources:\nsku/1 went back: the log has position 2, the database 1\n")
	var said anchored
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &said))
	require.Equal(t, violation{"sku/2", 4, 3, "sku/2 went back: the log has position 4, the database 3"}, said.Violations[1])
	require.Equal(t, []any{int64(4), 3, 0, string(read(t, f.log+".checkpoint"))}, []any{said.Records, said.Resources, said.Recorded, said.Checkpoint})
}

func TestAudit_SaysWhatIsWrongWithLogsAndKeys(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	write(t, f.dsn, "sku/1")
	require.Equal(t, cli.ExitOK, f.anchor(t).Code)
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	changed := filepath.Join(dir, "changed")
	require.NoError(t, os.WriteFile(changed, append([]byte("x"), read(t, f.log)...), 0o600))
	require.NoError(t, os.WriteFile(changed+".checkpoint", read(t, f.log+".checkpoint"), 0o600))
	busy := filepath.Join(dir, "busy")
	signer, err := anchor.ParseSigner(string(read(t, f.key)))
	require.NoError(t, err)
	log, err := anchor.Create(busy, signer)
	require.NoError(t, err)
	defer log.Close()
	pub, shared := f.key+".pub", filepath.Join(dir, "shared")
	require.NoError(t, os.WriteFile(shared, read(t, f.key), 0o600))
	require.NoError(t, os.Chmod(shared, 0o644))

	requireEndings(t, []string{"audit", "--database-url", f.dsn}, []ending{
		{[]string{"anchor"}, cli.ExitUsage, "required: --key, --log\n"},
		{[]string{"anchor", "--log", none, "--key", none}, cli.ExitUsage, "--key: open " + none},
		{[]string{"anchor", "--log", none, "--key", pub}, cli.ExitUsage, "this is not the private key of a log"},
		{[]string{"anchor", "--log", none, "--key", shared}, cli.ExitUsage, shared + " has mode 0644, so others than its owner may have read or changed it: run \"chmod 600 "},
		{[]string{"anchor", "--log", none, "--key", f.key}, cli.ExitNotReady, "restore the log, or begin one with --begin"},
		{[]string{"anchor", "--log", f.log, "--key", f.key, "--begin"}, cli.ExitUsage, "the log " + f.log + " exists already: leave out --begin"},
		{[]string{"anchor", "--log", dir, "--key", f.key}, cli.ExitNotReady, "is a directory"},
		{[]string{"anchor", "--log", os.DevNull, "--key", f.key}, cli.ExitUsage, "a log has to be a regular file"},
		{[]string{"anchor", "--log", busy, "--key", f.key}, cli.ExitNotReady, "the log is in use"},
		{[]string{"anchor", "--log", changed, "--key", f.key}, cli.ExitViolated, "line 1 of the log is no record"},
		{[]string{"anchor", "--log", f.log, "--key", f.key, "--schema", "other"}, cli.ExitNotReady, "fencectl migrate up"},
		{[]string{"keygen", "--out", none}, cli.ExitUsage, "takes one argument, NAME"},
		{[]string{"keygen", "a b", "--out", none}, cli.ExitUsage, "can't be the name of a key"},
		{[]string{"keygen", "a", "--out", f.key}, cli.ExitUsage, f.key + " exists, and is never overwritten"},
		{[]string{"keygen", "a", "--out", filepath.Join(dir, "no", "such")}, cli.ExitNotReady, "no such file"},
	})
}

func TestAuditKeygen_WritesBothFilesOrNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "keygen", "example.com/shop", "--out", path).Code)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, os.Remove(path))
	public := read(t, path+".pub")
	require.Equal(t, cli.ExitUsage, fencectl(t, "audit", "keygen", "example.com/shop", "--out", path).Code)
	require.NoFileExists(t, path)
	require.Equal(t, public, read(t, path+".pub"))
}
