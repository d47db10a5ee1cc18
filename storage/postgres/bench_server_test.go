package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// BenchmarkServer reports what one backend spends on the messages of guarded transactions
// that do nothing else: CPU time over that of "begin; commit", in microseconds, and bytes of
// write-ahead log. The forms take turns of 20; it reports the median turn of each.
func BenchmarkServer(b *testing.B) {
	for _, n := range []int{1, 5, 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newServerBench(b, n)
			forms := []string{"empty", "check", "guarded", "read", "claim"}
			cpu, wal := map[string][]float64{}, map[string][]float64{}
			for range 20 {
				s.turn("check") // plans and caches
				s.turn("guarded")
				s.turn("read")
				s.turn("claim")
			}
			for b.Loop() {
				for _, form := range forms {
					us, bytes := s.turn(form)
					cpu[form], wal[form] = append(cpu[form], us), append(wal[form], bytes)
				}
			}
			base := median(cpu["empty"])
			for _, form := range forms[1:] {
				b.ReportMetric(median(cpu[form])-base, form+"-us")
				b.ReportMetric(median(wal[form])-median(wal["empty"]), form+"-wal-B")
			}
		})
	}
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

type serverBench struct {
	*testing.B
	conn   *pgx.Conn
	store  *postgres.Store
	claims []storage.Claim
	id     storage.TxID
	token  fence.Token
	pid    int
}

func newServerBench(b *testing.B, n int) *serverBench {
	dsn := migrated(b)
	pool := openPool(b, dsn)
	s := &serverBench{B: b, store: newStore(b, pool, patient()), token: 5}
	var err error
	s.conn, err = pgx.Connect(b.Context(), dsn)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.conn.Close(context.Background()) })
	s.pid = query[int](b, s.conn, "select pg_backend_pid()")
	for i := range n {
		s.claims = append(s.claims, claim(b, s.store, fence.Grant{Resource: fmt.Sprintf("sku/%03d", i), Epoch: 1, Token: s.token, Holder: "host-12345/0011223344556677"}))
	}
	s.store.TakeForNoneDeferrable()
	return s
}

// turn runs a form 20 times and returns what one took.
func (s *serverBench) turn(form string) (us, wal float64) {
	const times = 20
	at, began := s.wal(), s.cpu()
	for range times {
		s.once(form)
	}
	return (s.cpu() - began) / times, (s.wal() - at) / times
}

func (s *serverBench) once(form string) {
	switch form {
	case "empty":
		s.begin(false)
		s.exec("commit")
	case "check":
		s.begin(true)
		s.exec("commit")
	case "guarded":
		s.id++
		s.begin(true)
		message, err := s.store.CommitMessage(s.id, s.claims, nil, nil)
		require.NoError(s, err)
		s.exec(message)
		s.claims = postgres.MovedBy(s.id, s.claims)
	case "read":
		begin, end := s.store.ReadMessages(s.claims)
		s.exec(begin)
		s.exec(end)
	case "claim":
		s.token++
		s.claims = s.claimAll()
	}
}

// begin begins a transaction with prepared statements, as the store does, and perhaps with the begin check.
func (s *serverBench) begin(check bool) {
	begin, sql, params := s.store.Head(s.claims)
	var batch pgx.Batch
	batch.Queue(begin)
	if check {
		batch.Queue(sql, params...)
	}
	batch.Queue("select 1")
	require.NoError(s, s.conn.SendBatch(s.Context(), &batch).Close())
}

func (s *serverBench) claimAll() []storage.Claim {
	var grants []fence.Grant
	for _, c := range s.claims {
		c.Grant.Token = s.token
		grants = append(grants, c.Grant)
	}
	answer, outcome, err := wire.Send(s.Context(), s.conn.PgConn(), s.store.ClaimsMessage(grants))
	require.NoError(s, err)
	require.Equal(s, wire.Committed, outcome)
	claims, rejections, err := postgres.ReadClaims(grants, answer)
	require.NoError(s, err)
	require.Empty(s, rejections)
	return claims
}

func (s *serverBench) exec(sql string) {
	_, err := s.conn.PgConn().Exec(s.Context(), sql).ReadAll()
	require.NoError(s, err)
}

// cpu returns the backend's CPU time so far in microseconds.
func (s *serverBench) cpu() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", s.pid))
	require.NoError(s, err)
	var ns float64
	_, err = fmt.Sscan(strings.TrimSpace(string(text)), &ns)
	require.NoError(s, err)
	return ns / 1000
}

func (s *serverBench) wal() float64 {
	return query[float64](s, s.conn, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8")
}
