package live

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

//go:embed page.html
var pageHTML []byte

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage)
	mux.HandleFunc("GET /events", s.serveEvents)
	mux.HandleFunc("POST /{do}/{worker}", s.serveDo)
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		// A name that someone else made point here is not this page's.
		if host := (&url.URL{Host: r.Host}).Hostname(); host != "localhost" && !net.ParseIP(host).IsLoopback() {
			http.Error(w, "this page is served to localhost only", http.StatusMisdirectedRequest)
			return
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

func servePage(w http.ResponseWriter, _ *http.Request) {
	nonce := rand.Text()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+
		"'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(bytes.ReplaceAll(pageHTML, []byte("NONCE"), []byte(nonce)))
}

// serveDo does what a button asks for.
func (s *shop) serveDo(w http.ResponseWriter, r *http.Request) {
	done := make(chan error, 1)
	select {
	case s.calls <- func(round *round) { done <- round.act(r.PathValue("do"), r.PathValue("worker")) }:
		if err := <-done; err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

// serveEvents streams entries and states. A browser whose connection broke says which entry it got last.
func (s *shop) serveEvents(w http.ResponseWriter, r *http.Request) {
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	n, shown := 0, []byte(nil)
	_, _ = fmt.Sscanf(r.Header.Get("Last-Event-ID"), s.feed.run+"-%d", &n) // 0 if it is none of ours
	for {
		entries, now, state, changed := s.feed.after(n)
		var b bytes.Buffer
		for _, e := range entries {
			b.Write(e)
		}
		if !bytes.Equal(state, shown) {
			fmt.Fprintf(&b, "event: state\ndata: %s\n\n", state)
		}
		n, shown = now, state
		_ = stream.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := w.Write(b.Bytes()); err != nil || stream.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// keep is how many entries a browser that comes back finds, at most.
const keep = 1000

// feed is what browsers are told: entries, each with an ID, and the present state.
type feed struct {
	run string // begins every ID, and tells those of an earlier process

	mu      sync.Mutex
	entries [][]byte // the latest, as they are sent
	told    int      // how many there have been
	state   []byte
	changed chan struct{} // closed by the next change
}

func (f *feed) tell(e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told++
	data, _ := json.Marshal(e)
	f.entries = append(f.entries, fmt.Appendf(nil, "id: %s-%d\nevent: entry\ndata: %s\n\n", f.run, f.told, data))
	f.entries = f.entries[max(0, len(f.entries)-keep):]
	f.notify()
}

func (f *feed) show(s state) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, _ = json.Marshal(s)
	f.notify()
}

func (f *feed) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// after returns what has come since the first n entries, how many there are now, and what is closed when there is
// more.
func (f *feed) after(n int) (entries [][]byte, now int, state []byte, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := min(max(0, f.told-n), len(f.entries))
	return f.entries[len(f.entries)-fresh:], f.told, f.state, f.changed
}
