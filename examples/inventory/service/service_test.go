package service

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

// service is a client of a server.
type service struct {
	testing.TB
	url  string
	http *http.Client
	log  *lockedBuffer
}

// patience is far above what anything here takes.
const patience = 2 * time.Minute

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// stocked returns a database with the inventory's tables and the product in stock.
func stocked(t testing.TB) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgserver.Database(t)
	return dsn, stock100(t, dsn)
}

func stock100(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, SetUp(t.Context(), pool))
	return pool
}

// config is that of a server on the servers that tests share.
func config(t testing.TB, dsn string) Config {
	t.Helper()
	cfg, err := ParseServe([]string{"-listen", "127.0.0.1:0", "-ttl", "10s", "-prefix", t.Name(), "-request-timeout", "1m",
		"-etcd", etcdserver.Shared(t).Endpoint(), "-postgres", dsn})
	require.NoError(t, err)
	return cfg
}

// startService runs a server in this process. It is stopped when the test ends.
func startService(t testing.TB, cfg Config) *service {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	log := &lockedBuffer{}
	done := make(chan error, 1)
	go func() {
		err := Serve(ctx, cfg, in, slog.New(slog.NewTextHandler(log, nil)))
		in.CloseWithError(io.EOF)
		done <- err
	}()
	s := newService(t, out)
	s.log = log
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Log("the server ended with:", err) // its etcd or Postgres may be gone
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return s
}

// newService returns a client of the server that announces itself on out.
func newService(t testing.TB, out io.Reader) *service {
	t.Helper()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url, found := strings.CutPrefix(lines.Text(), "serving on "); found {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			t.Cleanup(client.CloseIdleConnections)
			return &service{TB: t, url: url, http: client}
		}
	}
	require.Fail(t, "the server ended and never said where it serves")
	return nil
}

// reply is an answer that has arrived wholly.
type reply struct {
	status int
	header http.Header
	body   string
}

// problem returns the reply's members, for a status of a problem.
func (r reply) problem(t testing.TB) (p map[string]any) {
	t.Helper()
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &p))
	require.EqualValues(t, r.status, p["status"])
	return p
}

// problemName returns the last part of the problem's type.
func (r reply) problemName(t testing.TB) string {
	t.Helper()
	kind := r.problem(t)["type"].(string)
	return kind[strings.LastIndexByte(kind, ':')+1:]
}

func (r reply) deduction(t testing.TB) (d deduction) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &d))
	return d
}

func (s *service) get(path string) reply {
	s.Helper()
	return s.call(s.request(http.MethodGet, path, ""))
}

// deduct asks for a quantity of the product, under a key.
func (s *service) deduct(key, body string) reply {
	s.Helper()
	return s.call(s.order(key, body))
}

// deductUnder asks for one unit, under a grant.
func (s *service) deductUnder(grant fence.Grant, key string) reply {
	s.Helper()
	r := s.order(key, `{"qty":1}`)
	guardhttp.SetGrants(r.Header, grant)
	return s.call(r)
}

func (s *service) order(key, body string) *http.Request {
	s.Helper()
	r := s.request(http.MethodPost, "/v1/skus/"+SKU+"/deduct", body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(keyHeader, key)
	return r
}

func (s *service) request(method, path, body string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s, err)
	return r
}

func (s *service) call(r *http.Request) reply {
	s.Helper()
	response, err := s.http.Do(r)
	require.NoError(s, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	return reply{response.StatusCode, response.Header, string(body)}
}

// eventually asks until the answer has a status.
func (s *service) eventually(status int, ask func() reply) reply {
	s.Helper()
	var last reply
	require.Eventually(s, func() bool {
		last = ask()
		return last.status == status
	}, 2*time.Minute, 50*time.Millisecond)
	return last
}
