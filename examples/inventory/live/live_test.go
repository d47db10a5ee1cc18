package live

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// The workers are this binary's processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(demo.Work(os.Args[2:]))
	}
	testenv.Main(m)
}

// quiet is a log that goes nowhere.
var quiet = slog.New(slog.DiscardHandler)

// patient is a context that only a hang exceeds.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func send(t *testing.T, r *http.Request) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(text)
}

// visitor is a browser: what it has been told, and what it presses.
type visitor struct {
	t       *testing.T
	page    string
	lines   *bufio.Scanner
	close   func()
	entries []entry
	state   state
}

func (v *visitor) connect() {
	v.t.Helper()
	ctx, cancel := context.WithCancel(patient(v.t))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.page+"/events", nil)
	require.NoError(v.t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(v.t, err)
	require.Equal(v.t, "text/event-stream", response.Header.Get("Content-Type"))
	v.lines = bufio.NewScanner(response.Body)
	v.lines.Buffer(nil, 1<<20)
	v.close = func() {
		cancel()
		_ = response.Body.Close()
	}
	v.t.Cleanup(v.close)
}

// await reads events until what it waits for is there.
func (v *visitor) await(what string, there func() bool) {
	v.t.Helper()
	for kind := ""; !there(); {
		require.True(v.t, v.lines.Scan(), "%s: the stream has ended: %v; was told %+v", what, v.lines.Err(), v.entries)
		field, value, _ := strings.Cut(v.lines.Text(), ": ")
		switch {
		case field == "event":
			kind = value
		case field == "data" && kind == "state":
			v.state = state{}
			require.NoError(v.t, json.Unmarshal([]byte(value), &v.state))
		case field == "data":
			var e entry
			require.NoError(v.t, json.Unmarshal([]byte(value), &e))
			v.entries = append(v.entries, e)
		}
	}
}

func (v *visitor) press(what, worker string) (status int) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(patient(v.t), http.MethodPost, v.page+"/"+what+"/"+worker, nil)
	require.NoError(v.t, err)
	status, _ = send(v.t, r)
	return status
}

func (v *visitor) lane(name string) lane {
	if i := slices.IndexFunc(v.state.Lanes, func(l *lane) bool { return l.Name == name }); i >= 0 {
		return *v.state.Lanes[i]
	}
	return lane{}
}

func (v *visitor) sold() (sum int) {
	for _, l := range v.state.Lots {
		sum += l.Sold
	}
	return sum
}

// The page's buttons work meanwhile.
func TestPage_SaysWhatDoesNotAnswer_AndGoesOn(t *testing.T) {
	t.Parallel()
	require.NoError(t, demo.WithServers(patient(t), func(etcd *etcdserver.Server, pg *pgserver.Server) error {
		listener, err := listenLoopback("127.0.0.1:0")
		require.NoError(t, err)
		ctx, end := context.WithCancel(patient(t))
		ended := make(chan error)
		go func() {
			ended <- serve(ctx, newShop(etcd, pg), listener, quiet, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		v := &visitor{t: t, page: "http://" + listener.Addr().String()}
		v.connect()
		v.await("it sells", func() bool { return v.sold() > 0 })
		require.NoError(t, etcd.Pause())
		v.await("etcd doesn't answer", func() bool { return v.state.Trouble != "" })
		require.Equal(t, http.StatusNoContent, v.press("pause", "worker-a"))
		require.Equal(t, http.StatusConflict, v.press("resume", "nobody"))
		require.NoError(t, etcd.Resume())
		v.await("stopped", func() bool { return v.lane("worker-a").Status == "stopped" })
		require.Equal(t, http.StatusConflict, v.press("pause", "worker-a"))
		before := v.sold()
		v.await("it sells again", func() bool { return v.state.Trouble == "" && v.sold() > before })
		v.close()
		end()
		return <-ended
	}))
}

func TestPage_IsForThisMachineAndItselfOnly(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.0.0.1:0"} {
		_, err := listenLoopback(address)
		require.ErrorIs(t, err, errNotLoopback, address)
	}

	page := try(t)
	post := func(header, value string) int {
		r, err := http.NewRequestWithContext(patient(t), http.MethodPost, page+"/burst/all", nil)
		require.NoError(t, err)
		r.Header.Set(header, value)
		if header == "Host" {
			r.Host = value
		}
		status, _ := send(t, r)
		return status
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(page, "http://"))
	require.NoError(t, err)
	for _, host := range []string{"localhost:" + port, "127.0.0.1", "[::1]:1"} {
		require.Equal(t, http.StatusNoContent, post("Host", host), host)
	}
	for _, host := range []string{"example.org", "localhost.example.org:" + port, "10.0.0.1:" + port, "0.0.0.0", "127.0.0.1@example.org"} {
		require.NotEqual(t, http.StatusNoContent, post("Host", host), host)
	}
	require.Equal(t, http.StatusNoContent, post("Origin", page))
	for _, origin := range []string{"http://example.org", "http://127.0.0.1:1", "null"} { // another program's page here, too
		require.Equal(t, http.StatusForbidden, post("Origin", origin), origin)
	}
	for _, site := range []string{"cross-site", "same-site"} {
		require.Equal(t, http.StatusForbidden, post("Sec-Fetch-Site", site), site)
	}

	r, err := http.NewRequestWithContext(patient(t), http.MethodGet, page+"/", nil)
	require.NoError(t, err)
	status, body := send(t, r)
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, "NONCE")
	require.NotContains(t, strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "http", "it loads nothing from elsewhere")
}
