package fencekit_test

import (
	"bufio"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// psql prints what the guide says, block by block, in the two sessions that the guide has.
func TestGuides_SQLIsWhatPsqlRuns(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)

	sessions := map[string]*psql{"first": newPsql(t, dsn), "second": newPsql(t, dsn)}
	blocks := regexp.MustCompile("(?s)```sql (first|second)\n(.*?)```\n```text\n(.*?)```").FindAllStringSubmatch(read(t, "docs/sql.md"), -1)
	require.Len(t, blocks, 7)
	for _, block := range blocks {
		require.Equal(t, timeless(block[3]), timeless(sessions[block[1]].run(t, block[2])), block[2])
	}
}

var times = regexp.MustCompile(`"since" : "[^"]+", "age" : [0-9.]+`)

// timeless returns what psql printed without what differs from run to run.
func timeless(text string) string { return times.ReplaceAllString(text, "TIME") }

// psql is a session of the program.
type psql struct {
	in  io.WriteCloser
	out *bufio.Reader // its errors as well
}

func newPsql(t *testing.T, dsn string) *psql {
	t.Helper()
	path, err := pgserver.Program(t.Context(), "psql")
	require.NoError(t, err)
	cmd := exec.Command(path, "--no-psqlrc", "--dbname", dsn)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	return &psql{in, bufio.NewReader(out)}
}

// run returns what psql prints for a block.
func (p *psql) run(t *testing.T, block string) string {
	t.Helper()
	const end = "end of block\n"
	_, err := io.WriteString(p.in, block+"\\echo "+end)
	require.NoError(t, err)
	var text strings.Builder
	for {
		line, err := p.out.ReadString('\n')
		require.NoError(t, err, text.String())
		if line == end {
			return text.String()
		}
		text.WriteString(line)
	}
}
