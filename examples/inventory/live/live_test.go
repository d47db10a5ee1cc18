package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/internal/testenv"
)

// The workers are this binary's processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(work(os.Args[2:]))
	}
	testenv.Main(m)
}

func work(args []string) (code int) {
	cfg, err := demo.ParseWorker(args)
	if err != nil {
		return 64
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := demo.RunWorker(ctx, cfg, os.Stdin, os.Stdout); err != nil {
		return 3
	}
	return 0
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
	last    string // Last-Event-ID
	entries []entry
	state   state
}

func (v *visitor) connect() {
	v.t.Helper()
	ctx, cancel := context.WithCancel(patient(v.t))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.page+"/events", nil)
	require.NoError(v.t, err)
	r.Header.Set("Last-Event-ID", v.last)
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
		case field == "id":
			v.last = value
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
	body, err := json.Marshal(do{what, worker})
	require.NoError(v.t, err)
	r, err := http.NewRequestWithContext(patient(v.t), http.MethodPost, v.page+"/do", strings.NewReader(string(body)))
	require.NoError(v.t, err)
	r.Header.Set("Content-Type", "application/json")
	status, _ = send(v.t, r)
	return status
}

func (v *visitor) lane(name string) lane {
	if i := slices.IndexFunc(v.state.Lanes, func(l *lane) bool { return l.Name == name }); i >= 0 {
		return *v.state.Lanes[i]
	}
	return lane{}
}

func (v *visitor) told(k kind, worker string) bool {
	return slices.ContainsFunc(v.entries, func(e entry) bool { return e.Kind == k && e.Worker == worker })
}

// pauseUntilSoldOn stops worker-a between its read and its write until the others have sold what it has read.
func (v *visitor) pauseUntilSoldOn() {
	v.t.Helper()
	require.Equal(v.t, http.StatusNoContent, v.press("pause", "worker-a"))
	v.await("stopped", func() bool { return v.lane("worker-a").Status == stopped })
	before := v.state.Sold
	v.await("the lease has run out", func() bool { return v.lane("worker-a").Lock == "" })
	require.Equal(v.t, http.StatusNoContent, v.press("burst", ""))
	v.await("sold on", func() bool { return v.state.Sold >= min(before+40, 100) })
	require.Equal(v.t, stopped, v.lane("worker-a").Status)
	require.Equal(v.t, http.StatusNoContent, v.press("resume", "worker-a"))
}

func TestPage_ShowsTheRejection_AndTheOversellWithoutTheFence(t *testing.T) {
	t.Parallel()
	page, _ := try(t)
	v := &visitor{t: t, page: page}
	v.connect()
	v.await("all have claimed", func() bool {
		return v.told(claimed, "worker-a") && v.told(claimed, "worker-b") && v.told(claimed, "worker-c")
	})
	v.close() // its stream breaks here
	last := len(v.entries)

	other := &visitor{t: t, page: page} // a second browser, whose stream doesn't
	other.connect()
	other.pauseUntilSoldOn()
	other.await("rejected", func() bool { return other.told(rejected, "worker-a") && other.lane("worker-a").Rejected == 1 })
	require.Zero(t, other.state.Oversold)
	require.Contains(t, other.lane("worker-a").Note, "was superseded by")

	v.connect()
	v.await("what it has missed", func() bool { return v.told(rejected, "worker-a") })
	require.Greater(t, len(v.entries), last)
	for i, e := range v.entries {
		require.Equal(t, fmt.Sprintf("%s-%d", v.state.Run, i+1), e.ID, "one is missing, or came twice")
	}

	require.Equal(t, http.StatusNoContent, v.press("fence-off", ""))
	v.await("a round without the fence", func() bool { return !v.state.Fenced && v.state.Oversold == 0 })
	v.pauseUntilSoldOn()
	v.await("oversold", func() bool { return v.state.Oversold > 0 && v.told(oversold, "worker-a") })
	require.Zero(t, v.lane("worker-a").Rejected)
}

func TestPage_KillsStartsAndCutsOff(t *testing.T) {
	t.Parallel()
	page, _ := try(t)
	v := &visitor{t: t, page: page}
	v.connect()
	v.await("it sells", func() bool { return v.lane("worker-b").Sold > 0 })
	require.Equal(t, http.StatusNoContent, v.press("kill", "worker-b"))
	v.await("killed", func() bool { return v.lane("worker-b").Status == killed })
	require.Equal(t, http.StatusConflict, v.press("pause", "worker-b"))
	require.Equal(t, http.StatusConflict, v.press("pause", "nobody"))
	token := v.lane("worker-b").Token
	require.Equal(t, http.StatusNoContent, v.press("start", "worker-b"))
	v.await("it claims again", func() bool { return v.lane("worker-b").Token > token })

	require.Equal(t, http.StatusNoContent, v.press("cut", "worker-c"))
	v.await("cut off, it has no lock", func() bool { return v.lane("worker-c").Cut && v.lane("worker-c").Lock == "" })
	token = v.lane("worker-c").Token
	before := v.state.Sold
	v.await("the others sell on", func() bool { return v.state.Sold >= before+8 })
	require.Equal(t, token, v.lane("worker-c").Token)
	require.Equal(t, http.StatusNoContent, v.press("mend", "worker-c"))
	v.await("it claims again", func() bool { return v.lane("worker-c").Token > token })
	require.Equal(t, http.StatusNoContent, v.press("restart", ""))
	v.await("new stock", func() bool { return v.state.Sold < 10 && v.state.Fenced })
}

func TestPage_IsForThisMachineAndItselfOnly(t *testing.T) {
	t.Parallel()
	_, err := listenLoopback("0.0.0.0:0")
	require.ErrorIs(t, err, errNotLoopback)

	page, _ := try(t)
	post := func(change func(*http.Request)) int {
		r, err := http.NewRequestWithContext(patient(t), http.MethodPost, page+"/do", strings.NewReader(`{"do":"burst"}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		change(r)
		status, _ := send(t, r)
		return status
	}
	require.Equal(t, http.StatusNoContent, post(func(r *http.Request) { r.Header.Set("Origin", page) }))
	require.Equal(t, http.StatusForbidden, post(func(r *http.Request) { r.Header.Set("Origin", "http://example.org") }))
	require.Equal(t, http.StatusForbidden, post(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	require.Equal(t, http.StatusMisdirectedRequest, post(func(r *http.Request) { r.Host = "example.org" }))
	require.Equal(t, http.StatusUnsupportedMediaType, post(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }))

	r, err := http.NewRequestWithContext(patient(t), http.MethodGet, page+"/", nil)
	require.NoError(t, err)
	status, body := send(t, r)
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, "NONCE")
	require.NotContains(t, strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "http", "it loads nothing from elsewhere")
}
